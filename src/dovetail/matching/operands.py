"""The keys of two complete sides as codes that can be compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.condition import Condition, keyed_rows, types
from dovetail.condition.strategy import KeyPair
from dovetail.core.codes import is_fixed, list_lengths, order_codes, short_decimals
from dovetail.core.rows import Rows, Side
from dovetail.matching.dictionary_keys import by_code
from dovetail.matching.equal_keys import EqualKeys, read_keys

Words = NDArray[np.int64]
Batches = tuple[pa.RecordBatch, pa.RecordBatch]
CodePair = tuple[NDArray[Any], NDArray[Any]]  # one int64 per row; or one line of doubles, where keys are lists

FEWEST_COORDINATES = 2  # that the kernels take


class Operands(NamedTuple):
    """Rows of each side that can match at all, and their codes."""

    rows: tuple[Rows, Rows]
    equal: EqualKeys | None
    ordered: tuple[CodePair, ...]  # of each pair of keys that is compared otherwise
    complete: bool = True  # False: there are no such codes, and `ordered` is empty


def read_operands(
    condition: Condition, batches: Batches, equal: Sequence[KeyPair], ordered: Sequence[KeyPair], metric: bool
) -> Operands:
    """Evaluate the keys of both sides and leave out rows that fail the filters or have a null key."""
    batches, equal = by_code(batches, equal)
    rows, columns = [], []
    for side in Side:
        alive, keys = keyed_rows(condition, side, batches[side], [pair[side] for pair in (*equal, *ordered)])
        rows.append(np.arange(batches[side].num_rows) if alive is None else alive)
        columns.append(keys)
    split = len(equal)
    equal_keys = read_keys(columns[0][:split], columns[1][:split]) if equal else None
    pairs = list(zip(columns[0][split:], columns[1][split:], strict=True))
    for left, right in pairs:
        if types.is_list(left.type):
            equal_keys = _with_lengths(equal_keys, (list_lengths(left), list_lengths(right)))
    codes = [_ordered_codes(left, right, metric) for left, right in pairs]
    known = tuple(pair for pair in codes if pair is not None)
    complete = len(known) == len(codes)
    return Operands((rows[0], rows[1]), equal_keys, known if complete else (), complete)


def _ordered_codes(left: pa.Array, right: pa.Array, metric: bool) -> CodePair | None:
    """Codes that keep order across both sides: those of the values, or ranks where a type has none.

    Lists become points. None where distances matter and there is no code that keeps them.
    """
    if types.is_list(left.type):
        width = max(int(list_lengths(left).max(initial=0)), int(list_lengths(right).max(initial=0)), FEWEST_COORDINATES)
        return _points(left, width), _points(right, width)
    if is_fixed(left.type):
        return order_codes(left).values, order_codes(right).values
    short = short_decimals(left), short_decimals(right)
    if short[0] is not None and short[1] is not None:
        return short[0], short[1]
    if metric:
        return None
    ranks = np.asarray(pc.rank(pa.chunked_array([left, right]), tiebreaker="dense")).astype(np.int64)
    return ranks[: len(left)], ranks[len(left) :]


def _with_lengths(keys: EqualKeys | None, lengths: tuple[Words, Words]) -> EqualKeys | None:
    """Keys that differ where lengths do, too; as they were, if all lists are of one length."""
    both = np.concatenate(lengths)
    if not len(both) or (both == both[0]).all():
        return keys
    if keys is None:
        return EqualKeys(lengths, True, ((), ()))
    _, both = np.unique(np.stack([np.concatenate(keys.codes), both]), axis=1, return_inverse=True)
    return keys._replace(codes=(both[: len(lengths[0])], both[len(lengths[0]) :]))


def _points(lists: pa.Array, width: int) -> NDArray[np.float64]:
    """One row per list, filled up with zeros: only lists of one length are compared. A null element is far from all."""
    points = np.zeros((len(lists), width))
    numbers = pc.fill_null(lists.flatten().cast(pa.float64()), np.nan)
    points[np.arange(width) < list_lengths(lists)[:, None]] = np.asarray(numbers)
    return points
