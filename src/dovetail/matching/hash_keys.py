"""Equality keys as hashes: one 64-bit number per row, the same on both sides and in every process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.condition import Condition, Expression, columns_of, evaluate, keyed_rows
from dovetail.core.codes import decimal_words, is_fixed, order_codes
from dovetail.core.rows import Rows, Side, take_rows
from dovetail.kernels import hashing


class Hashed(NamedTuple):
    """The rows that can match at all (None: all of them), and their hashes."""

    rows: Rows | None
    hashes: NDArray[np.int64]


class HashKeys:
    """The equalities of a condition, ready to hash batches of either side."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._keys = [(p.left, p.right) for p in condition.equalities]

    @property
    def exact(self) -> bool:
        """Whether equal hashes mean equal keys, so that no candidate has to be checked."""
        return len(self._keys) == 1 and is_fixed(self._keys[0][0].type)

    @property
    def checks(self) -> tuple[Expression, ...]:
        """What rows with equal hashes still have to satisfy."""
        covered = {s for p in self._condition.equalities for s in p.source} if self.exact else set()
        return tuple(c for c in self._condition.conjuncts if c not in covered)

    def hash(self, side: Side, batch: pa.RecordBatch) -> Hashed:
        """Hash the rows that have no null key and pass the one-sided filters."""
        rows, columns = keyed_rows(self._condition, side, batch, self.keys_of(side))
        return Hashed(rows, self.hash_columns(columns))

    def copies(self, side: Side, batch: pa.RecordBatch) -> Iterator[Hashed]:
        """As `hash`: every row stands in one place."""
        yield self.hash(side, batch)

    def hash_again(self, side: Side, batch: pa.RecordBatch, rows: Rows | None = None) -> NDArray[np.int64]:
        """The hashes of rows that were left over by `hash`, or of some of them."""
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
    """The keys of all rows, or of some of them; filters are not looked at."""
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
    return hashing.hash_strings(*byte_strings(array))


def byte_strings(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Where the values of a column begin and end, and their bytes."""
    t = pa.types
    if not (t.is_string(array.type) or t.is_binary(array.type) or t.is_large_string(array.type)):
        array = pc.cast(array, pa.large_binary())
    width = np.int32 if t.is_string(array.type) or t.is_binary(array.type) else np.int64
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(1, width), np.empty(0, np.uint8)
    places = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
    return places, np.frombuffer(data if data is not None else b"", np.uint8)


def _hash_wide_decimals(array: pa.Array) -> NDArray[np.int64]:
    words = array.type.bit_width // 64
    raw = decimal_words(array)
    hashes = hashing.hash_codes(np.ascontiguousarray(raw[0::words]))
    for word in range(1, words):
        hashing.combine(hashes, np.ascontiguousarray(raw[word::words]))
    return hashes
