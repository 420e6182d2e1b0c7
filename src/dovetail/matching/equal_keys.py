"""Rows of two complete sides with equal keys.

A single key of fixed width is its own code, and so are several that fit into 64 bits together. All others are hashed,
and looked at once: if no two hashes collide, no pair has to be checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.codes import decimal_words, is_fixed, order_codes
from dovetail.core.rows import Side
from dovetail.core.threads import both
from dovetail.kernels import equality
from dovetail.kernels.equality import Equality
from dovetail.kernels.hashing import combine
from dovetail.matching.hash_keys import byte_strings, hash_column
from dovetail.matching.kernel_pairs import Listed, Prepared, Swapped

Words = NDArray[np.int64]
CodePair = tuple[Words, Words]

ROOM = 2**62  # of codes that are made of several


class EqualKeys(NamedTuple):
    """Codes of the keys of both sides; unless they are exact, different keys may have the same code."""

    codes: CodePair
    is_exact: bool
    columns: tuple[Sequence[pa.Array], Sequence[pa.Array]]


def read_keys(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> EqualKeys:
    """Columns without nulls, the same number of them on both sides."""
    columns = (left, right)
    if all(is_fixed(column.type) for column in left):
        keys = [
            (order_codes(mine).values, order_codes(theirs).values) for mine, theirs in zip(left, right, strict=True)
        ]
        packed = keys[0] if len(keys) == 1 else _pack(keys)
        if packed is not None:
            return EqualKeys(packed, True, columns)
    return EqualKeys(both(lambda: _hash(left), lambda: _hash(right)), False, columns)


def equal_codes(columns: Sequence[pa.Array]) -> Words:
    """Of one side alone: the order codes of a single key of fixed width, which are exact; a hash of anything else."""
    if len(columns) == 1 and is_fixed(columns[0].type):
        return order_codes(columns[0]).values
    return _hash(columns)


def _hash(columns: Sequence[pa.Array]) -> Words:
    hashes = hash_column(columns[0])
    for column in columns[1:]:
        combine(hashes, hash_column(column))
    return hashes


def _pack(keys: Sequence[CodePair]) -> CodePair | None:
    """One code of several, by their places in the ranges that they span; None where that takes too many bits."""
    if not (len(keys[0][0]) and len(keys[0][1])):
        return keys[0]
    lows = [min(int(mine.min()), int(theirs.min())) for mine, theirs in keys]
    spans = [max(int(mine.max()), int(theirs.max())) - low + 1 for low, (mine, theirs) in zip(lows, keys, strict=True)]
    total = 1
    for span in spans:
        total *= span
    if total > ROOM:
        return None
    packed = [np.zeros(len(codes), np.int64) for codes in keys[0]]
    for low, span, pair in zip(lows, spans, keys, strict=True):
        for side in Side:
            packed[side] *= span
            packed[side] += pair[side] - low
    return packed[0], packed[1]


def match_keys(keys: EqualKeys) -> tuple[Equality, bool]:
    """The partners of each left row by code, and whether all of them have equal keys."""
    join = equality.prepare(*keys.codes)
    return join, keys.is_exact or _same(join, *keys.columns)


def equal_pairs(keys: EqualKeys) -> tuple[Listed, bool]:
    """All pairs by code, the smaller side in buckets, and whether all of them have equal keys."""
    lefts, rights = (len(codes) for codes in keys.codes)
    if lefts >= rights:
        join, exact = match_keys(keys)
        return Prepared(equality, join), exact
    (left, right), (mine, theirs) = keys.codes, keys.columns
    join, exact = match_keys(EqualKeys((right, left), keys.is_exact, (theirs, mine)))
    return Swapped(Prepared(equality, join), lambda: Prepared(equality, equality.prepare(left, right))), exact


def _same(join: Equality, left: Sequence[pa.Array], right: Sequence[pa.Array]) -> bool:
    lefts, rights = equality.pairs_to_compare(join)
    return all(_same_column(mine, theirs, lefts, rights) for mine, theirs in zip(left, right, strict=True))


def _same_column(
    left: pa.Array, right: pa.Array, lefts: NDArray[np.signedinteger], rights: NDArray[np.signedinteger]
) -> bool:
    if is_fixed(left.type):
        return bool(equality.same_codes(order_codes(left).values, order_codes(right).values, lefts, rights))
    if pa.types.is_decimal(left.type):
        words = [decimal_words(column).reshape(-1, column.type.bit_width // 64) for column in (left, right)]
        return bool((words[0][lefts] == words[1][rights]).all())
    return bool(equality.same_strings(*byte_strings(left), *byte_strings(right), lefts, rights))
