"""Equality keys: as hashes, one 64-bit number per row, and the pairs of rows of two complete sides with equal keys.

A hash is the same on both sides and in every process. For two complete sides, a single fixed-width key is its own code,
and so are several keys that fit into 64 bits together. All others are hashed and compared once: if no two hashes
collide, no pair has to be checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.columns.taking import take_rows
from dovetail.condition import Condition, Expression, columns_of, evaluate, keyed_rows
from dovetail.core.buffers import OFFSETS, byte_strings, decimal_words
from dovetail.core.codes import is_fixed, order_codes
from dovetail.core.rows import Rows, Side
from dovetail.core.threads import both
from dovetail.kernels import equality, hashing
from dovetail.kernels.equality import Equality
from dovetail.matching.kernel_pairs import Listed, Prepared, Swapped

Words = NDArray[np.int64]
CodePair = tuple[Words, Words]

MOST_CODES = 2**62  # the range of a code that combines several keys


class Hashed(NamedTuple):
    """The rows that can match (None: all of them), and their hashes."""

    rows: Rows | None
    hashes: NDArray[np.int64]


class HashKeys:
    """The equalities of a condition, prepared to hash batches of either side."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._keys = [(p.left, p.right) for p in condition.equalities]

    @property
    def exact(self) -> bool:
        """Whether equal hashes mean equal keys, so that no candidate has to be checked."""
        return len(self._keys) == 1 and is_fixed(self._keys[0][0].type)

    @property
    def checks(self) -> tuple[Expression, ...]:
        """The conditions that rows with equal hashes still have to satisfy."""
        covered = {s for p in self._condition.equalities for s in p.source} if self.exact else set()
        return tuple(c for c in self._condition.conjuncts if c not in covered)

    def hash(self, side: Side, batch: pa.RecordBatch) -> Hashed:
        """Hash the rows that have no null key and pass the one-sided filters."""
        rows, columns = keyed_rows(self._condition, side, batch, self.keys_of(side))
        return Hashed(rows, self.hash_columns(columns))

    def copies(self, side: Side, batch: pa.RecordBatch) -> Iterator[Hashed]:
        """Like `hash`; every row has one place."""
        yield self.hash(side, batch)

    def hash_again(self, side: Side, batch: pa.RecordBatch, rows: Rows | None = None) -> NDArray[np.int64]:
        """The hashes of rows that passed `hash`, or of some of them."""
        return self.hash_columns(key_columns(side, batch, self.keys_of(side), rows))

    def rehash(self, side: Side) -> Callable[[pa.RecordBatch, Rows | None], NDArray[np.int64]]:
        return partial(self.hash_again, side)

    def keys_of(self, side: Side) -> list[Expression]:
        return [pair[side] for pair in self._keys]

    def hash_columns(self, columns: list[pa.Array]) -> NDArray[np.int64]:
        """Hash evaluated keys that have no nulls."""
        hashes = hash_column(columns[0])
        for column in columns[1:]:
            hashing.combine(hashes, hash_column(column))
        return hashes


def key_columns(
    side: Side, batch: pa.RecordBatch, keys: Sequence[Expression], rows: Rows | None = None
) -> list[pa.Array]:
    """The keys of all rows, or of some of them, without applying filters."""
    if rows is not None:
        names = sorted({column.name for key in keys for column in columns_of(key)})
        batch = take_rows(batch.select(names), rows)
    return [evaluate(key, *((batch, None) if side is Side.LEFT else (None, batch))) for key in keys]


def hash_column(array: pa.Array) -> NDArray[np.int64]:
    """Hashes of a key column without nulls."""
    if is_fixed(array.type):
        return hashing.hash_codes(order_codes(array).values)
    if pa.types.is_decimal(array.type):
        return _hash_wide_decimals(array)
    return hashing.hash_strings(*key_bytes(array))


def key_bytes(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The offsets of the values in a key column, and their bytes."""
    return byte_strings(array if array.type.id in OFFSETS else pc.cast(array, pa.large_binary()))


def _hash_wide_decimals(array: pa.Array) -> NDArray[np.int64]:
    words = array.type.bit_width // 64
    raw = decimal_words(array)
    hashes = hashing.hash_codes(np.ascontiguousarray(raw[0::words]))
    for word in range(1, words):
        hashing.combine(hashes, np.ascontiguousarray(raw[word::words]))
    return hashes


class EqualKeys(NamedTuple):
    """Codes of the keys of both sides. Unless they are exact, different keys may have the same code."""

    codes: CodePair
    is_exact: bool
    columns: tuple[Sequence[pa.Array], Sequence[pa.Array]]


def read_keys(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> EqualKeys:
    """Codes of columns without nulls, the same number of columns on both sides."""
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
    """Codes of one side alone: exact order codes for a single fixed-width key, otherwise hashes."""
    if len(columns) == 1 and is_fixed(columns[0].type):
        return order_codes(columns[0]).values
    return _hash(columns)


def _hash(columns: Sequence[pa.Array]) -> Words:
    hashes = hash_column(columns[0])
    for column in columns[1:]:
        hashing.combine(hashes, hash_column(column))
    return hashes


def _pack(keys: Sequence[CodePair]) -> CodePair | None:
    """One code for several keys, from their positions in the ranges of values; None if that takes too many bits."""
    if not (len(keys[0][0]) and len(keys[0][1])):
        return keys[0]
    lows = [min(int(mine.min()), int(theirs.min())) for mine, theirs in keys]
    spans = [max(int(mine.max()), int(theirs.max())) - low + 1 for low, (mine, theirs) in zip(lows, keys, strict=True)]
    total = 1
    for span in spans:
        total *= span
    if total > MOST_CODES:
        return None
    packed = [np.zeros(len(codes), np.int64) for codes in keys[0]]
    for low, span, pair in zip(lows, spans, keys, strict=True):
        for side in Side:
            packed[side] *= span
            packed[side] += pair[side] - low
    return packed[0], packed[1]


def match_keys(keys: EqualKeys) -> tuple[Equality, bool]:
    """The partners of each left row by code, and whether their keys are all equal."""
    join = equality.prepare(*keys.codes)
    return join, keys.is_exact or _same(join, *keys.columns)


def equal_pairs(keys: EqualKeys) -> tuple[Listed, bool]:
    """All pairs by code, with the smaller side in buckets, and whether their keys are all equal."""
    lefts, rights = map(len, keys.codes)
    if lefts >= rights:
        join, exact = match_keys(keys)
        return Prepared(equality, join), exact
    (left, right), (mine, theirs) = keys.codes, keys.columns
    join, exact = match_keys(EqualKeys((right, left), keys.is_exact, (theirs, mine)))
    return Swapped(Prepared(equality, join), lambda: Prepared(equality, equality.prepare(left, right))), exact


def _same(join: Equality, left: Sequence[pa.Array], right: Sequence[pa.Array]) -> bool:
    return same_keys(left, right, *equality.pairs_to_compare(join))


def same_keys(left: Sequence[pa.Array], right: Sequence[pa.Array], lefts: Rows, rights: Rows) -> bool:
    """Whether the keys of all these pairs are equal, column by column."""
    return all(_same_column(mine, theirs, lefts, rights) for mine, theirs in zip(left, right, strict=True))


def _same_column(
    left: pa.Array, right: pa.Array, lefts: NDArray[np.signedinteger], rights: NDArray[np.signedinteger]
) -> bool:
    if is_fixed(left.type):
        return equality.same_codes(order_codes(left).values, order_codes(right).values, lefts, rights)
    if pa.types.is_decimal(left.type):
        words = [decimal_words(column).reshape(-1, column.type.bit_width // 64) for column in (left, right)]
        return bool((words[0][lefts] == words[1][rights]).all())
    return equality.same_strings(key_bytes(left), key_bytes(right), lefts, rights)
