"""Hash tables and sets that take few bytes per row.

The table is for rows that are numbered without gaps, and some of which are removed:

    heads[bucket]   the latest row of a bucket, plus one; 0 = none. The bucket is the hash's position in equal ranges
    nexts[row]      the next row of its bucket, plus one
    tags[row]       eight other bits of its hash: one in 256 candidates with another hash is not recognised

Probing goes in rounds as in hash_table.py. Rows are removed without knowing their hashes: the links show which bucket a
row is in.

The set records which hashes have been seen before, in four bytes each:

    slots[place]    0, or the low half of a hash; the place is where its high half falls, or the next free one

Two different hashes are mistaken for one only if their low halves agree and they are stored next to each other: about
once in a thousand sets of a million. Callers must tolerate that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]
Links = NDArray[np.int32]
Tags = NDArray[np.uint8]

HALF = np.uint64(32)
LOW_BYTE = np.uint64(0xFF)
LOW_HALF = np.uint64(0xFFFFFFFF)
ONE = np.uint64(1)


@kernel
def bucket_of(hash_: np.int64, buckets: int) -> np.int64:
    return np.int64(((np.uint64(hash_) >> HALF) * np.uint64(buckets)) >> HALF)


@kernel
def append(heads: Links, nexts: Links, tags: Tags, hashes: Words, first_row: int) -> None:
    """Add rows first_row, first_row + 1, …"""
    for i in range(len(hashes)):
        row = first_row + i
        bucket = bucket_of(hashes[i], len(heads))
        tags[row] = np.uint64(hashes[i]) & LOW_BYTE
        nexts[row] = heads[bucket]
        heads[bucket] = row + 1


@kernel
def remove(heads: Links, nexts: Links, tags: Tags, gone: NDArray[np.bool_]) -> None:
    """Remove the marked rows; later rows move up. Works in place."""
    for bucket in range(len(heads)):
        entry = heads[bucket]
        heads[bucket] = 0
        while entry:
            row = entry - 1
            entry = nexts[row]
            nexts[row] = bucket  # temporarily, links say which bucket each row belongs to
    kept = 0
    for row in range(len(gone)):
        if not gone[row]:
            bucket = nexts[row]
            tags[kept] = tags[row]
            nexts[kept] = heads[bucket]
            kept += 1
            heads[bucket] = kept


@kernel
def start(heads: Links, hashes: Words) -> tuple[Words, Words]:
    """The probing rows whose bucket is not empty, and the first link of each."""
    probing = np.empty(len(hashes), np.int64)
    entries = np.empty(len(hashes), np.int64)
    active = 0
    for i in range(len(hashes)):
        entry = np.int64(heads[bucket_of(hashes[i], len(heads))])
        probing[active] = i  # always written, but kept only if there is an entry
        entries[active] = entry
        active += entry != 0
    return probing[:active], entries[:active]


@kernel
def walk(
    nexts: Links, tags: Tags, hashes: Words, probing: Words, entries: Words, capacity: int
) -> tuple[Words, Words, int]:
    """Candidates (probing row, resident row), and the number of unfinished walks, as in hash_table.py."""
    out_probing = np.empty(capacity, np.int64)
    out_resident = np.empty(capacity, np.int64)
    out = 0
    active = len(probing)
    while active > 0 and out + active <= capacity:
        unfinished = 0
        for j in range(active):
            i = probing[j]
            row = entries[j] - 1
            out_probing[out] = i
            out_resident[out] = row
            out += np.uint64(tags[row]) == np.uint64(hashes[i]) & LOW_BYTE
            entry = np.int64(nexts[row])
            probing[unfinished] = i
            entries[unfinished] = entry
            unfinished += entry != 0
        active = unfinished
    return out_probing[:out], out_resident[:out], active


@kernel
def mark_seen(slots: NDArray[np.uint32], hashes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Record the hashes, and return which had been recorded before. There must be more slots than hashes in total."""
    before = np.zeros(len(hashes), np.bool_)
    places = np.uint64(len(slots))
    for i in range(len(hashes)):
        word = np.uint64(hashes[i])
        low = np.uint32((word & LOW_HALF) | ONE)  # 0 marks a free slot
        place = np.int64(((word >> HALF) * places) >> HALF)
        while slots[place] != 0 and slots[place] != low:
            place = np.int64((place + 1) % len(slots))
        before[i] = slots[place] == low
        slots[place] = low
    return before
