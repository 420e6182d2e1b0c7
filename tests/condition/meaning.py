"""Compares typed predicates, evaluated literally, with the conjuncts from which they were derived."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import (
    Band,
    Call,
    Condition,
    Distance,
    Equal,
    Expression,
    Less,
    Literal,
    NotEqual,
    Overlap,
    Predicate,
    Rectangles,
    closed_bounds,
    evaluate,
    matching,
    sides_of,
)
from dovetail.core.codes import Codes, order_codes
from dovetail.core.rows import Side

Mask = NDArray[np.bool_]
Aligned = tuple[pa.RecordBatch, pa.RecordBatch]


def check_meaning(condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
    """Exact predicates hold exactly where their source does; floating-point predicates may also hold elsewhere."""
    left_rows = np.repeat(np.arange(left.num_rows), right.num_rows)
    right_rows = np.tile(np.arange(right.num_rows), left.num_rows)
    pairs = (_rows(left, left_rows), _rows(right, right_rows))
    for predicate in condition.predicates:
        source = matching(predicate.source, left, left_rows, right, right_rows)
        claimed, exact = view(predicate, pairs)
        if exact:
            assert (claimed == source).all(), predicate
        else:
            assert claimed[source].all(), predicate


def _rows(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    plain = [c.cast(pa.string()) if pa.types.is_string_view(c.type) else c for c in batch.columns]
    return pa.record_batch([column.take(pa.array(rows)) for column in plain], batch.schema.names)


def view(predicate: Predicate, pairs: Aligned) -> tuple[Mask, bool]:
    """Where the typed predicate holds, and whether it is exact."""
    match predicate:
        case Equal(left, right):
            return _holds("=", left, right, pairs), True
        case NotEqual(left, right):
            return _holds("!=", left, right, pairs), True
        case Less(left, operator, right):
            return _holds(operator, left, right, pairs), True
        case Band():
            return _in_band(predicate, pairs)
        case Overlap():
            return _overlaps(predicate, pairs), True
        case Rectangles(x, y):
            return _overlaps(x, pairs) & _overlaps(y, pairs), True
        case Distance():
            return _near(predicate, pairs), False


def _holds(operator: str, left: Expression, right: Expression, pairs: Aligned) -> Mask:
    assert left.type == right.type
    assert sides_of(left) == {Side.LEFT}
    assert sides_of(right) == {Side.RIGHT}
    return np.asarray(evaluate(Call(operator, (left, right), pa.bool_()), *pairs).fill_null(False))


def _overlaps(overlap: Overlap, pairs: Aligned) -> Mask:
    first = _holds("<=" if overlap.left_low_closed else "<", overlap.left.low, overlap.right.high, pairs)
    second = _holds(">=" if overlap.left_high_closed else ">", overlap.left.high, overlap.right.low, pairs)
    return first & second


def _codes(expression: Expression, pairs: Aligned) -> Codes:
    return order_codes(evaluate(expression, *pairs))


def _valid(*codes: Codes) -> Mask:
    result = np.ones(len(codes[0].values), np.bool_)
    for code in codes:
        if code.valid is not None:
            result &= code.valid
    return result


def _in_band(band: Band, pairs: Aligned) -> tuple[Mask, bool]:
    assert band.left.type == band.right.type
    low, high = closed_bounds(band)
    if pa.types.is_floating(band.left.type):
        left, right = (np.asarray(evaluate(e, *pairs).fill_null(0.0)) for e in (band.left, band.right))
        valid = _valid(*(_codes(e, pairs) for e in (band.left, band.right)))
        return valid & _between(left, right + low, right + high), False
    left_codes, right_codes = _codes(band.left, pairs), _codes(band.right, pairs)
    difference = left_codes.values - right_codes.values
    return _valid(left_codes, right_codes) & (difference >= low) & (difference <= high), True


def _between(values: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]) -> Mask:
    """In the total order with NaN last, with a small margin, as in a search for a band in sorted values."""
    margin = 1e-9 * (1 + np.abs(np.nan_to_num(values, posinf=0, neginf=0)))
    with np.errstate(invalid="ignore"):
        above = np.isnan(values) | (values >= low - margin)
        below = np.isnan(high) | (values <= high + margin)
    return above & below


def _near(distance: Distance, pairs: Aligned) -> Mask:
    assert isinstance(distance.radius, Literal)
    radius = distance.radius.value * (1 + 1e-9) + 1e-9
    call = Call("distance", (*distance.left, *distance.right), pa.float64())
    values = np.asarray(evaluate(call, *pairs).fill_null(np.inf))
    near: Mask = values <= radius
    return near
