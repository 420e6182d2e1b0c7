"""A hash table over 64-bit hashes: rows are appended in batches and never move.

    heads[hash & mask]   the latest row of a bucket, plus one; 0 = none. Four bytes per bucket
    links[2 row]         the row's hash
    links[2 row + 1]     the next row of its bucket, plus one, so that a row's hash and successor share a cache line

Probing walks all buckets of a batch in rounds, one link per round. The loads of a round are independent, and nothing
branches on data, so memory latency is hidden.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel
from dovetail.kernels.instructions import prefetch

Words = NDArray[np.int64]
Heads = NDArray[np.int32]

FAR = 32  # rows ahead whose bucket or link is prefetched


@kernel
def append(heads: Heads, links: Words, hashes: Words, first_row: int) -> None:
    """Add rows first_row, first_row + 1, …"""
    mask = np.int64(len(heads) - 1)
    for i in range(len(hashes)):
        if i + FAR < len(hashes):
            prefetch(heads, hashes[i + FAR] & mask)
        row = first_row + i
        bucket = hashes[i] & mask
        links[2 * row] = hashes[i]
        links[2 * row + 1] = heads[bucket]
        heads[bucket] = row + 1


@kernel
def relink(heads: Heads, links: Words, rows: int) -> None:
    """Rebuild all links for an empty array of heads of another size."""
    mask = np.int64(len(heads) - 1)
    for row in range(rows):
        if row + FAR < rows:
            prefetch(heads, links[2 * (row + FAR)] & mask)
        bucket = links[2 * row] & mask
        links[2 * row + 1] = heads[bucket]
        heads[bucket] = row + 1


@kernel
def start(heads: Heads, hashes: Words) -> tuple[Words, Words]:
    """The probing rows whose bucket is not empty, and the first link of each."""
    mask = np.int64(len(heads) - 1)
    probing = np.empty(len(hashes), np.int64)
    entries = np.empty(len(hashes), np.int64)
    active = 0
    for i in range(len(hashes)):
        if i + FAR < len(hashes):
            prefetch(heads, hashes[i + FAR] & mask)
        entry = np.int64(heads[hashes[i] & mask])
        probing[active] = i  # always written, but kept only if there is an entry
        entries[active] = entry
        active += entry != 0
    return probing[:active], entries[:active]


@kernel
def walk(links: Words, hashes: Words, probing: Words, entries: Words, capacity: int) -> tuple[Words, Words, int]:
    """Follow the links for as many rounds as certainly fit in `capacity` pairs.

    Returns the pairs (probing row, resident row) and the number of unfinished walks: these are at the front of
    `probing` and `entries`, which are overwritten. `capacity` must be at least the number of walks.
    """
    out_probing = np.empty(capacity, np.int64)
    out_resident = np.empty(capacity, np.int64)
    out = 0
    active = len(probing)
    while active > 0 and out + active <= capacity:
        unfinished = 0
        for j in range(active):
            if j + FAR < active:
                prefetch(links, 2 * (entries[j + FAR] - 1))
            i = probing[j]
            row = entries[j] - 1
            out_probing[out] = i
            out_resident[out] = row
            out += links[2 * row] == hashes[i]
            entry = links[2 * row + 1]
            probing[unfinished] = i
            entries[unfinished] = entry
            unfinished += entry != 0
        active = unfinished
    return out_probing[:out], out_resident[:out], active
