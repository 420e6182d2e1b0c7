"""The keys of two complete sides as codes that can be compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.batch import Rows, Side
from dovetail.condition import Condition, Expression, evaluate, passing
from dovetail.kernels.hashing import combine
from dovetail.keys import is_fixed, order_codes
from dovetail.state.hash_keys import hash_column

Words = NDArray[np.int64]
Batches = tuple[pa.RecordBatch, pa.RecordBatch]
KeyPair = tuple[Expression, Expression]
CodePair = tuple[Words, Words]


class Operands(NamedTuple):
    """Rows of each side that can match at all, and their codes."""

    rows: tuple[Rows, Rows]
    equal: CodePair | None  # of all equal keys together
    ordered: tuple[CodePair, ...]  # of each pair of keys that is compared otherwise


def read_operands(
    condition: Condition, batches: Batches, equal: Sequence[KeyPair], ordered: Sequence[KeyPair]
) -> Operands:
    """Evaluate the keys of both sides and leave out rows that fail the filters or have a null key."""
    rows, columns = [], []
    for side in Side:
        alive, keys = _alive(condition, batches[side], side, [pair[side] for pair in (*equal, *ordered)])
        rows.append(alive)
        columns.append(keys)
    split = len(equal)
    hashes = (_equal_codes(columns[0][:split]), _equal_codes(columns[1][:split])) if equal else None
    codes = tuple(_ordered_codes(*pair) for pair in zip(columns[0][split:], columns[1][split:], strict=True))
    return Operands((rows[0], rows[1]), hashes, codes)


def _alive(
    condition: Condition, batch: pa.RecordBatch, side: Side, keys: list[Expression]
) -> tuple[Rows, list[pa.Array]]:
    sides = (batch, None) if side is Side.LEFT else (None, batch)
    columns = [evaluate(key, *sides) for key in keys]
    alive = passing(condition.filters[side], side, batch)
    for column in columns:
        if column.null_count:
            valid = np.asarray(column.is_valid())
            alive = valid if alive is None else alive & valid
    if alive is None:
        return np.arange(batch.num_rows), columns
    rows = np.flatnonzero(alive)
    return rows, [column.take(pa.array(rows)) for column in columns]


def _equal_codes(columns: list[pa.Array]) -> Words:
    """The order codes of a single key of fixed width, which are exact; a hash of anything else."""
    if len(columns) == 1 and is_fixed(columns[0].type):
        return order_codes(columns[0]).values
    hashes = hash_column(columns[0])
    for column in columns[1:]:
        combine(hashes, hash_column(column))
    return hashes


def _ordered_codes(left: pa.Array, right: pa.Array) -> CodePair:
    """Codes that keep order across both sides: those of the values, or ranks where a type has none."""
    if is_fixed(left.type):
        return order_codes(left).values, order_codes(right).values
    ranks = np.asarray(pc.rank(pa.chunked_array([left, right]), tiebreaker="dense")).astype(np.int64)
    return ranks[: len(left)], ranks[len(left) :]
