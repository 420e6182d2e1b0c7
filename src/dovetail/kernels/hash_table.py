"""A hash table over 64-bit hashes that never moves a row: insert and probe whole batches.

Open addressing with linear probing. A slot is two words beside each other, one cache line to touch:

    slots[2 i]      the hash
    slots[2 i + 1]  number of rows with that hash (high 32 bits), the latest of them (low 32 bits); 0 = empty

Rows with equal hashes are chained through `chain[row]`, latest first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiling import kernel

Words = NDArray[np.int64]
Links = NDArray[np.int32]

LOW = np.int64(0xFFFFFFFF)
ONE_MORE = np.int64(1 << 32)


@kernel
def insert(slots: Words, chain: Links, hashes: Words, first_row: int) -> int:
    """Insert rows first_row, first_row + 1, …; return how many of their hashes are new."""
    mask = np.int64(len(slots) // 2 - 1)
    fresh = 0
    for i in range(len(hashes)):
        h = hashes[i]
        row = np.int64(first_row + i)
        slot = h & mask
        while True:
            entry = slots[2 * slot + 1]
            if entry == 0:
                slots[2 * slot] = h
                slots[2 * slot + 1] = ONE_MORE | row
                chain[row] = -1
                fresh += 1
                break
            if slots[2 * slot] == h:
                chain[row] = np.int32(entry & LOW)
                slots[2 * slot + 1] = ((entry >> 32) + 1) << 32 | row
                break
            slot = (slot + 1) & mask
    return fresh


@kernel
def resize(slots: Words, larger: Words) -> None:
    """Move every slot into a larger, empty table."""
    mask = np.int64(len(larger) // 2 - 1)
    for i in range(len(slots) // 2):
        entry = slots[2 * i + 1]
        if entry != 0:
            slot = slots[2 * i] & mask
            while larger[2 * slot + 1] != 0:
                slot = (slot + 1) & mask
            larger[2 * slot] = slots[2 * i]
            larger[2 * slot + 1] = entry


@kernel
def find(slots: Words, hashes: Words) -> tuple[Words, int]:
    """Per probing row the second word of its slot (0: no match), and the number of pairs in all."""
    mask = np.int64(len(slots) // 2 - 1)
    entries = np.empty(len(hashes), np.int64)
    pairs = 0
    for i in range(len(hashes)):
        h = hashes[i]
        slot = h & mask
        entry = slots[2 * slot + 1]
        while entry != 0 and slots[2 * slot] != h:
            slot = (slot + 1) & mask
            entry = slots[2 * slot + 1]
        entries[i] = entry
        pairs += entry >> 32
    return entries, pairs


@kernel
def follow(entries: Words, chain: Links, start: int, end: int, pairs: int) -> tuple[Words, Words]:
    """The pairs of probing rows start..end as (probing row, resident row)."""
    probing = np.empty(pairs, np.int64)
    resident = np.empty(pairs, np.int64)
    out = 0
    for i in range(start, end):
        entry = entries[i]
        if entry != 0:
            row = entry & LOW
            for _ in range(entry >> 32):
                probing[out] = i
                resident[out] = row
                out += 1
                if entry >> 32 > 1:
                    row = np.int64(chain[row])
    return probing, resident
