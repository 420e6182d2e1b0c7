"""Stable 64-bit hashes: the same in every process, on every machine, in every run.

A hash of one fixed-width key is a bijection (equal hashes mean equal keys), so it needs no check. Hashes of strings
and of several keys together can collide and must be verified.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.core.threads import in_ranges
from dovetail.kernels.compiling import kernel
from dovetail.kernels.instructions import WORD_BYTES, read_word

Hashes = NDArray[np.int64]

FIRST = np.uint64(0xFF51AFD7ED558CCD)  # the constants of MurmurHash3's 64-bit finaliser
SECOND = np.uint64(0xC4CEB9FE1A85EC53)
ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads combined hashes
SHIFT = np.uint64(33)
EIGHT = np.uint64(8)


@kernel
def mix(x: np.uint64) -> np.uint64:
    x ^= x >> SHIFT
    x *= FIRST
    x ^= x >> SHIFT
    x *= SECOND
    return x ^ (x >> SHIFT)


def hash_codes(codes: NDArray[np.int64]) -> Hashes:
    """One hash per code; different codes have different hashes."""
    hashes = np.empty(len(codes), np.int64)
    in_ranges(lambda start, end: _hash_codes(codes[start:end], hashes[start:end]), len(codes))
    return hashes


def hash_strings(offsets: NDArray[Any], data: NDArray[np.uint8]) -> Hashes:
    """One hash per byte string `data[offsets[i]:offsets[i + 1]]`."""
    hashes = np.empty(len(offsets) - 1, np.int64)
    in_ranges(lambda start, end: _hash_strings(offsets[start : end + 1], data, hashes[start:end]), len(hashes))
    return hashes


def combine(hashes: Hashes, more: Hashes) -> None:
    """Combine the hashes of one more key into `hashes`, in place."""
    in_ranges(lambda start, end: _combine(hashes[start:end], more[start:end]), len(hashes))


@kernel
def _hash_codes(codes: NDArray[np.int64], hashes: Hashes) -> None:
    for i in range(len(codes)):
        hashes[i] = np.int64(mix(np.uint64(codes[i])))


@kernel
def _hash_strings(offsets: NDArray[Any], data: NDArray[np.uint8], hashes: Hashes) -> None:
    for i in range(len(hashes)):
        start = offsets[i]
        end = offsets[i + 1]
        h = mix(np.uint64(end - start) + ODD)
        while end - start >= WORD_BYTES:
            h = mix((h ^ read_word(data, start)) * ODD)
            start += WORD_BYTES
        if start < end:
            word = np.uint64(0)
            for position in range(start, end):
                word = (word << EIGHT) | np.uint64(data[position])
            h = mix((h ^ word) * ODD)
        hashes[i] = np.int64(h)


@kernel
def _combine(hashes: Hashes, more: Hashes) -> None:
    for i in range(len(hashes)):
        hashes[i] = np.int64(mix(np.uint64(hashes[i]) * ODD + np.uint64(more[i])))


def partitions_of(hashes: Hashes, partitions: int) -> NDArray[np.int64]:
    """The partition of each hash: its position in this number of equal ranges."""
    high = hashes.view(np.uint64) >> np.uint64(32)
    return ((high * np.uint64(partitions)) >> np.uint64(32)).view(np.int64)
