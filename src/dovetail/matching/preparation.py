"""Converts the keys of two complete sides to codes, and prepares the kernel for each class of predicate.

Keys that are dictionary-encoded on both sides are compared by their codes, so each value is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.condition import (
    Band,
    Call,
    Column,
    Condition,
    Distance,
    Expression,
    Less,
    Literal,
    Overlap,
    Predicate,
    Rectangles,
    closed_bounds,
    columns_of,
    keyed_rows,
    matching,
    types,
)
from dovetail.condition.expression import type_of
from dovetail.condition.predicates import KeyPair, Strategy
from dovetail.core.codes import is_fixed, list_lengths, order_codes, short_decimals
from dovetail.core.rows import Rows, Side
from dovetail.core.threads import in_ranges, ranges
from dovetail.kernels import (
    band,
    band2d,
    candidates,
    cross,
    distance,
    one_inequality,
    rectangles,
    similarity,
    two_inequalities,
    windows,
)
from dovetail.kernels.windows import Check, Windows
from dovetail.matching.equal_keys import EqualKeys, read_keys
from dovetail.matching.kernel_pairs import All, Flags, Listed, Others, Prepared

Words = NDArray[np.int64]
Batches = tuple[pa.RecordBatch, pa.RecordBatch]
CodePair = tuple[NDArray[Any], NDArray[Any]]  # one int64 per row; for lists, a row of doubles

FEWEST_COORDINATES = 2  # that the kernels accept
OPERATORS = {"<": cross.LESS, "<=": cross.LESS_EQUAL, ">": cross.GREATER, ">=": cross.GREATER_EQUAL}
PLANE_AND_SPACE = (2, 3)  # dimensions
DOUBLE, SINGLE = 2.0**-50, 2.0**-20  # relative errors, with a margin
HUGE = 2.0**60
IN_CACHE = 1 << 14  # row numbers


@dataclass(frozen=True)  # no slots, because of the cached property
class Operands:
    """Rows of each side that can match, and their codes."""

    alive: tuple[Rows | None, Rows | None]  # None: all rows of the side
    sizes: tuple[int, int]  # of the sides
    equal: EqualKeys | None
    ordered: tuple[CodePair, ...]  # one per pair of keys that is not compared for equality
    complete: bool = True  # False: there are no such codes, and `ordered` is empty

    @cached_property
    def rows(self) -> tuple[Rows, Rows]:
        """The row numbers of both sides."""
        left, right = (_all_rows(n) if rows is None else rows for rows, n in zip(self.alive, self.sizes, strict=True))
        return left, right


def _all_rows(size: int) -> Rows:
    if len(ranges(size)) == 1:
        return np.arange(size)
    rows = np.empty(size, np.int64)

    def number(start: int, end: int) -> None:
        for first in range(start, end, IN_CACHE):
            last = min(end, first + IN_CACHE)
            rows[first:last] = np.arange(first, last)

    in_ranges(number, size)
    return rows


def read_operands(
    condition: Condition, batches: Batches, equal: Sequence[KeyPair], ordered: Sequence[KeyPair], metric: bool
) -> Operands:
    """Evaluate the keys of both sides, and drop rows that fail the filters or have a null key."""
    batches, equal = by_code(batches, equal)
    (left, lefts), (right, rights) = (
        keyed_rows(condition, side, batches[side], [pair[side] for pair in (*equal, *ordered)]) for side in Side
    )
    columns = (lefts, rights)
    split = len(equal)
    equal_keys = read_keys(columns[0][:split], columns[1][:split]) if equal else None
    pairs = list(zip(columns[0][split:], columns[1][split:], strict=True))
    for mine, theirs in pairs:
        if types.is_list(mine.type):
            equal_keys = _with_lengths(equal_keys, (list_lengths(mine), list_lengths(theirs)))
    codes = [_ordered_codes(mine, theirs, metric) for mine, theirs in pairs]
    known = tuple(pair for pair in codes if pair is not None)
    complete = len(known) == len(codes)
    sizes = (batches[0].num_rows, batches[1].num_rows)
    return Operands((left, right), sizes, equal_keys, known if complete else (), complete)


def _ordered_codes(left: pa.Array, right: pa.Array, metric: bool) -> CodePair | None:
    """Codes that keep order across both sides: codes of the values, or ranks if the type has none.

    Lists become points. None if distances matter and no code keeps them.
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
    """Keys extended by the lengths of lists; unchanged if all lists have the same length."""
    both = np.concatenate(lengths)
    if not len(both) or (both == both[0]).all():
        return keys
    if keys is None:
        return EqualKeys(lengths, True, ((), ()))
    _, both = np.unique(np.stack([np.concatenate(keys.codes), both]), axis=1, return_inverse=True)
    return keys._replace(codes=(both[: len(lengths[0])], both[len(lengths[0]) :]))


def _points(lists: pa.Array, width: int) -> NDArray[np.float64]:
    """One row per list, padded with zeros: only equal lengths are compared. A null element is far from everything."""
    points = np.zeros((len(lists), width))
    numbers = pc.fill_null(lists.flatten().cast(pa.float64()), np.nan)
    points[np.arange(width) < list_lengths(lists)[:, None]] = np.asarray(numbers)
    return points


def by_code(batches: Batches, pairs: Sequence[KeyPair]) -> tuple[Batches, list[KeyPair]]:
    """The same keys; pairs of dictionary-encoded text become integer columns that are added to the batches."""
    found: list[KeyPair] = []
    for pair in pairs:
        encoded = [_encoded(key, batch) for key, batch in zip(pair, batches, strict=True)]
        if encoded[0] is None or encoded[1] is None:
            found.append(pair)
            continue
        name = _new_name(batches)
        codes = _codes(encoded[0], encoded[1])
        batches = batches[0].append_column(name, codes[0]), batches[1].append_column(name, codes[1])
        found.append((Column(Side.LEFT, name, pa.int64()), Column(Side.RIGHT, name, pa.int64())))
    return batches, found


def _new_name(batches: Batches) -> str:
    """A column name that is not in use."""
    return "__code" + "_" * max(len(name) for batch in batches for name in batch.schema.names)


def _encoded(key: Expression, batch: pa.RecordBatch) -> pa.DictionaryArray | None:
    """The column of a key that is just a dictionary-encoded text column."""
    match key:
        case Call("cast", (Column(_, name),), target) if types.is_text(target):
            column = batch.column(name)
            is_text = isinstance(column, pa.DictionaryArray) and types.is_text(column.type.value_type)
            return column if is_text else None
    return None


def _codes(left: pa.DictionaryArray, right: pa.DictionaryArray) -> tuple[pa.Array, pa.Array]:
    """One number per row, the same on both sides for the same text. A dictionary may contain a text twice, or null."""
    values = [column.dictionary.cast(pa.large_string()) for column in (left, right)]
    known = pc.unique(pa.chunked_array(values)).drop_null()
    numbers = [pc.index_in(of_side, known) for of_side in values]
    return numbers[0].cast(pa.int64()).take(left.indices), numbers[1].cast(pa.int64()).take(right.indices)


def prepare_kernel(strategy: Strategy, operands: Operands, batches: Batches) -> Listed:
    """The kernel of the class, prepared for the rows of the operands."""
    match strategy.predicates:
        case []:
            return All(len(operands.rows[0]), len(operands.rows[1]))
        case [Rectangles() as predicate]:
            return Prepared(rectangles, _rectangles(predicate, operands.ordered))
        case [Distance() as predicate]:
            return Prepared(candidates, _distance(predicate, operands, batches))
        case [Band() as x, Band() as y]:
            both = (_band(x, 0, operands, batches), _band(y, 1, operands, batches))
            return Prepared(candidates, band2d.prepare(*both))
        case [Band() as predicate]:
            return Prepared(windows, _band(predicate, 0, operands, batches))
        case [Overlap() as predicate]:
            return _two(overlap_operators(predicate), operands.ordered[0], operands.ordered[1])
        case [Less(_, operator)]:
            return Prepared(one_inequality, one_inequality.prepare(*operands.ordered[0], OPERATORS[operator]))
        case [Less(_, first), Less(_, second)]:
            return _two((OPERATORS[first], OPERATORS[second]), operands.ordered[0], operands.ordered[1])
    return Others(band.prepare(*operands.ordered[0], 0, 0))


def overlap_operators(overlap: Overlap) -> tuple[int, int]:
    """The operators (1) and (2) in l.low (1) r.high and l.high (2) r.low."""
    return (
        cross.LESS_EQUAL if overlap.left_low_closed else cross.LESS,
        cross.GREATER_EQUAL if overlap.left_high_closed else cross.GREATER,
    )


def _two(operators: tuple[int, int], first: CodePair, second: CodePair) -> Listed:
    join = two_inequalities.prepare((first[0], second[0]), (first[1], second[1]), operators)
    return Prepared(two_inequalities, join)


def _rectangles(predicate: Rectangles, ordered: tuple[CodePair, ...]) -> rectangles.Rectangles:
    (x_low, other_x_high), (x_high, other_x_low), (y_low, other_y_high), (y_high, other_y_low) = ordered
    closed = (rectangles.Closed(p.left_low_closed, p.left_high_closed) for p in (predicate.x, predicate.y))
    left = rectangles.Sides(x_low, x_high, y_low, y_high)
    right = rectangles.Sides(other_x_low, other_x_high, other_y_low, other_y_high)
    return rectangles.prepare(left, right, *closed)


def _distance(predicate: Distance, operands: Operands, batches: Batches) -> candidates.Candidates:
    """Points nearer than the radius. If rounding may decide, the condition is evaluated as written."""
    points = [tuple(map(band.code_floats, pair)) if pair[0].ndim == 1 else pair for pair in operands.ordered]
    left, right = ([column[side] for column in points] for side in Side)
    assert isinstance(predicate.radius, Literal)
    radius = float(predicate.radius.value)
    ask = _as_written(predicate, operands, batches)
    slack = _slack(predicate, radius, [*left, *right])
    if len(left) in PLANE_AND_SPACE and left[0].ndim == 1:
        return distance.prepare(left, right, radius, predicate.closed, ask, slack)
    lines = [points[0] if points[0].ndim == 2 else np.stack(points, axis=1) for points in (left, right)]
    return similarity.prepare(lines[0], lines[1], radius, predicate.closed, ask, slack)


def _slack(predicate: Distance, radius: float, columns: Sequence[NDArray[np.float64]]) -> float:
    """How far a distance may differ from that of doubles, because differences were computed in another type."""
    read = [type_of(c) for source in predicate.source for c in columns_of(source)]
    if all(pa.types.is_float64(type_) or types.is_list(type_) for type_ in read):
        return 0.0
    largest = max(float(np.abs(column).max(initial=0.0, where=np.isfinite(column))) for column in columns)
    slack = len(columns) * largest * DOUBLE
    if any(pa.types.is_float32(type_) or pa.types.is_float16(type_) for type_ in read):
        # Beyond these sizes, squares overflow or underflow in single precision.
        slack += radius * SINGLE + 1 / HUGE if radius < HUGE else 2 * radius
    return slack


def _as_written(predicate: Predicate, operands: Operands, batches: Batches) -> Check:
    def check(lefts: Rows, rights: Rows) -> Flags:
        rows = operands.rows
        return matching(predicate.source, batches[0], rows[0][lefts], batches[1], rows[1][rights])

    return check


def _band(predicate: Band, key: int, operands: Operands, batches: Batches) -> Windows:
    low, high = closed_bounds(predicate)
    left, right = operands.ordered[key]
    if isinstance(low, int) and isinstance(high, int):
        return band.prepare(left, right, low, high)
    columns = [c for source in predicate.source for c in columns_of(source)]
    single = any(pa.types.is_float32(type_of(c)) or pa.types.is_float16(type_of(c)) for c in columns)
    step = band.SINGLE_STEP if single else band.DOUBLE_STEP
    ask = _as_written(predicate, operands, batches)
    return band.prepare_checked(band.code_floats(left), band.code_floats(right), low, high, ask, step)
