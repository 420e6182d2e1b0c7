"""Aggregates over the pairs of two complete sides, per group, as partial results that can be merged.

    right values --> kernel per sum --> one number per left row --\
    left values ------ times how many partners it has -------------+--> rows in groups --> one number per group

Groups consist of left rows. To group by the right side, the condition is mirrored. Pairs are enumerated, in chunks,
only if candidates have to be checked.

A measure says how a partial column is computed. For each row of its side it gives a number to sum, or a rank to take
the minimum of. It gets back the result over all pairs of each left row, and combines these into one value per group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.aggregates.columns import PartialColumn, partial_columns, partial_schema
from dovetail.aggregates.groups import Groups, decimals_of, each_row, group, one_group, split_into_limbs
from dovetail.columns.taking import take_rows
from dovetail.condition import Condition, Expression, columns_of, evaluate, passing, sides_of
from dovetail.condition.mirror import mirrored, mirrored_expression
from dovetail.condition.select import Aggregate, GroupColumn
from dovetail.core.codes import is_fixed, order_codes
from dovetail.core.rows import Rows, Side
from dovetail.errors import ConditionError
from dovetail.kernels.coverage import add_lengths
from dovetail.kernels.sorting import invert, sort_codes
from dovetail.matching import build_matcher
from dovetail.matching.kernel_pairs import NONE, Numbers, Words
from dovetail.matching.matcher import CHUNK, Part, Parts

ROW = "row"


@dataclass(frozen=True, slots=True)
class PartnerAggregates:
    """One entry per left row in each array."""

    counts: Words
    sums: list[Numbers]
    smallest: list[Words]  # NONE where all partners have that code, or there are no partners


def over_partners(matcher: Parts, numbers: Sequence[Numbers], codes: Sequence[Words]) -> PartnerAggregates:
    """Sum each of `numbers` and take the minimum of each of `codes`; both have one entry per right row.

    Integers must be small enough that no sum over all right rows overflows 64 bits.
    """
    rows = matcher.batches[0].num_rows
    found = PartnerAggregates(
        np.zeros(rows, np.int64),
        [np.zeros(rows, column.dtype) for column in numbers],
        [np.full(rows, NONE) for _ in codes],
    )
    with np.errstate(over="ignore", invalid="ignore"):  # infinities are summed like other numbers
        for part in matcher.parts:
            if part.checks or ((numbers or codes) and not part.listed.adds_up):
                for lefts, rights in Parts(matcher.batches, (part,)).pairs(CHUNK):
                    _add_pairs(found, lefts, rights, numbers, codes)
            else:
                _add_part(found, part, numbers, codes)
    return found


def _add_part(found: PartnerAggregates, part: Part, numbers: Sequence[Numbers], codes: Sequence[Words]) -> None:
    lefts, rights = part.rows
    found.counts[lefts] += part.listed.row_counts()
    for sums, column in zip(found.sums, numbers, strict=True):
        sums[lefts] += part.listed.row_sums(column[rights])
    for smallest, column in zip(found.smallest, codes, strict=True):
        smallest[lefts] = np.minimum(smallest[lefts], part.listed.row_smallest(column[rights]))


def _add_pairs(
    found: PartnerAggregates, lefts: Rows, rights: Rows, numbers: Sequence[Numbers], codes: Sequence[Words]
) -> None:
    """Pairs of one left row are mostly consecutive: each run of them is summed first."""
    starts = np.flatnonzero(np.diff(lefts, prepend=-1))
    rows = lefts[starts]
    np.add.at(found.counts, rows, np.diff(starts, append=len(lefts)))
    for sums, column in zip(found.sums, numbers, strict=True):
        np.add.at(sums, rows, np.add.reduceat(column[rights], starts))
    for smallest, column in zip(found.smallest, codes, strict=True):
        np.minimum.at(smallest, rows, np.minimum.reduceat(column[rights], starts))


def partial_aggregates(
    condition: Condition,
    aggregates: Sequence[Aggregate],
    by: Sequence[GroupColumn],
    left: pa.RecordBatch,
    right: pa.RecordBatch,
) -> pa.RecordBatch:
    """One row per group that has a pair, with the columns of `partial_schema`; without `by`, always one row."""
    keys = [column.value for column in by]
    columns = list(partial_columns(aggregates))
    batches = [
        _select_rows(side, condition, keys, columns, batch) for side, batch in zip(Side, (left, right), strict=True)
    ]
    condition = replace(condition, filters=((), ()))  # rows that fail the filters are already removed
    if _groups_side(columns, by) is Side.RIGHT:
        condition, batches = mirrored(condition), batches[::-1]
        keys = [mirrored_expression(key) for key in keys]
        columns = [_mirror_column(column) for column in columns]
    matcher = build_matcher(condition, batches[0], batches[1])
    taken = [evaluate(key, batches[0], None) for key in keys]
    return pa.RecordBatch.from_arrays(_aggregate_groups(matcher, columns, taken), schema=partial_schema(aggregates, by))


def aggregates_of_left(
    condition: Condition,
    aggregates: Sequence[Aggregate],
    by: Sequence[GroupColumn],
    left: pa.RecordBatch,
    right: pa.RecordBatch,
) -> pa.RecordBatch:
    """Like `partial_aggregates`, but left rows without pairs also have groups. Without `by`, every row is a group."""
    columns = partial_columns(aggregates)
    keys = [column.value for column in by]
    read = [*condition.conjuncts, *condition.filters[0], *condition.filters[1], *keys]
    read += [value for column in columns for value in (column.value, column.other) if value is not None]
    names = [{c.name for e in read for c in columns_of(e) if c.side is side} for side in Side]
    matcher = build_matcher(condition, left.select(sorted(names[0])), right.select(sorted(names[1])))
    taken = [evaluate(key, left, None) for key in keys]
    groups = group(taken) if taken and left.num_rows else each_row(left.num_rows)
    rows = np.arange(left.num_rows)
    arrays = _answers(matcher, columns, groups, rows)
    firsts = pa.array(groups.first_rows)
    return pa.RecordBatch.from_arrays(
        [*(key.take(firsts) for key in taken), *arrays], schema=partial_schema(aggregates, by)
    )


def partials_by_row(matcher: Parts, aggregates: Sequence[Aggregate]) -> pa.RecordBatch:
    """Partial results of each left row that has a partner: `row`, its number, then as in `partial_schema`."""
    columns = partial_columns(aggregates)
    numbers = pa.array(np.arange(matcher.batches[0].num_rows))
    schema = partial_schema(aggregates, ())
    arrays = _aggregate_groups(matcher, columns, [numbers])
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([pa.field(ROW, pa.int64()), *schema]))


def _groups_side(columns: Sequence[PartialColumn], by: Sequence[GroupColumn]) -> Side:
    """The side that is grouped; without groups, the side from which more values are read, which saves kernels."""
    if by:
        return by[0].side
    values = [column.value for column in columns if column.value is not None]
    rights = sum(Side.RIGHT in sides_of(value) for value in values)
    return Side.RIGHT if 2 * rights > len(values) else Side.LEFT


def _mirror_column(column: PartialColumn) -> PartialColumn:
    if column.value is None:
        return column
    other = None if column.other is None else mirrored_expression(column.other)
    return replace(column, value=mirrored_expression(column.value), other=other)


def _select_rows(
    side: Side, condition: Condition, keys: list[Expression], columns: list[PartialColumn], batch: pa.RecordBatch
) -> pa.RecordBatch:
    """The rows that pass the filters, with the columns that are needed."""
    values = [value for column in columns for value in (column.value, column.other) if value is not None]
    read = [*condition.conjuncts, *keys, *values]
    alive = passing(condition.filters[side], side, batch)
    batch = batch.select(sorted({column.name for e in read for column in columns_of(e) if column.side is side}))
    return batch if alive is None else take_rows(batch, np.flatnonzero(alive))


def _aggregate_groups(matcher: Parts, columns: Sequence[PartialColumn], keys: Sequence[pa.Array]) -> list[pa.Array]:
    """The keys of each group of left rows with partners, then the partial columns."""
    measures = [_build_measure(column, *matcher.batches) for column in columns]
    found = _over_partners(matcher, measures)
    rows = np.flatnonzero(found.counts)
    taken = [key.take(pa.array(rows)) for key in keys]
    groups = group(taken) if taken else one_group(len(rows))
    answers = _of_groups(matcher, measures, found, groups, rows)
    return [*(key.take(pa.array(groups.first_rows)) for key in taken), *answers]


def _answers(matcher: Parts, columns: Sequence[PartialColumn], groups: Groups, rows: Rows) -> list[pa.Array]:
    """The partial columns of groups that may contain rows without pairs."""
    measures = [_build_measure(column, *matcher.batches, flagged=True) for column in columns]
    return _of_groups(matcher, measures, _over_partners(matcher, measures), groups, rows)


def _over_partners(matcher: Parts, measures: Sequence[Measure]) -> PartnerAggregates:
    rights = [m for m in measures if m.side is Side.RIGHT]
    return over_partners(matcher, [n for m in rights for n in m.numbers], [r for m in rights for r in m.ranks])


def _of_groups(
    matcher: Parts, measures: Sequence[Measure], found: PartnerAggregates, groups: Groups, rows: Rows
) -> list[pa.Array]:
    """One value per measure for each group of these left rows."""
    counts = found.counts[rows]
    sums, smallest = iter(found.sums), iter(found.smallest)
    answers = []
    for m in measures:
        if isinstance(m, Coverage):
            answers.append(m.covered(groups, _items(matcher, m.side, groups, rows, counts)))
            continue
        if m.side is Side.LEFT:
            with np.errstate(over="ignore"):  # values that are too large become infinite
                numbers = [column[rows] * counts for column in m.numbers]
            ranks = [np.where(counts > 0, column[rows], NONE) for column in m.ranks]
        else:
            numbers = [next(sums)[rows] for _ in m.numbers]
            ranks = [next(smallest)[rows] for _ in m.ranks]
        answers.append(m.answer(groups, numbers, ranks))
    return answers


def _items(matcher: Parts, side: Side, groups: Groups, rows: Rows, counts: Words) -> tuple[Words, Words]:
    """Groups, and the rows of one side that belong to them."""
    of_row = np.full(matcher.batches[0].num_rows, -1)
    members = groups.members
    of_row[rows[members.right]] = np.repeat(members.left, members.ends - members.starts)
    if side is Side.LEFT:
        some = rows[counts > 0]
        return of_row[some], some
    pairs = [(of_row[lefts], rights.astype(np.int64)) for lefts, rights in matcher.pairs(CHUNK)]
    empty = np.empty(0, np.int64)
    return np.concatenate([empty, *(p[0] for p in pairs)]), np.concatenate([empty, *(p[1] for p in pairs)])


def _build_measure(
    column: PartialColumn, left: pa.RecordBatch, right: pa.RecordBatch, flagged: bool = False
) -> Measure:
    """`flagged`: there may be rows without pairs; their sum is null."""
    if column.function in ("first", "last", "min_by", "max_by", "coverage"):
        return _of_one_side(column, left, right)
    if column.value is None:
        return measure(column, Side.LEFT, None, left.num_rows, right.num_rows)
    side = Side.RIGHT if Side.RIGHT in sides_of(column.value) else Side.LEFT
    values = evaluate(column.value, left, None) if side is Side.LEFT else evaluate(column.value, None, right)
    return measure(column, side, values, left.num_rows, right.num_rows, flagged)


def _of_one_side(column: PartialColumn, left: pa.RecordBatch, right: pa.RecordBatch) -> Measure:
    """Measures of the side from which values are chosen: the right one, unless the condition was mirrored."""
    assert column.value is not None
    side = Side.RIGHT if Side.RIGHT in sides_of(column.value) else Side.LEFT
    batches = (left, None) if side is Side.LEFT else (None, right)
    value = evaluate(column.value, *batches)
    if column.function == "coverage":
        assert column.other is not None
        return Coverage(side, value, evaluate(column.other, *batches), column.type, [], [])
    if column.other is not None:
        ranks = rank(evaluate(column.other, *batches), largest_first=column.function == "max_by")
        places = np.where(ranks.ranks == NONE, NONE, invert(np.argsort(ranks.ranks, kind="stable")))  # without ties
        return Extreme(side, [], [places], Ranks(value, places))
    rows = np.arange(len(value))
    order = Ranks(value, rows if column.function == "first" else len(value) - 1 - rows)
    return Extreme(side, [], [order.ranks], order)


@dataclass(frozen=True, slots=True)
class Ranks:
    """A smaller rank means a smaller (or a larger) value. Null has the rank NONE."""

    values: pa.Array
    ranks: Words

    def values_at(self, ranks: Words) -> pa.Array:
        """The values that have these ranks."""
        rows = np.zeros(len(self.values), np.int64)
        some = self.ranks != NONE
        rows[self.ranks[some]] = np.flatnonzero(some)
        missing = ranks == NONE
        wanted = np.zeros(len(ranks), np.int64)
        wanted[~missing] = rows[ranks[~missing]]
        return self.values.take(pa.array(wanted, mask=missing))


def rank(values: pa.Array, largest_first: bool) -> Ranks:
    """Ranks from 0. NaN is the largest number."""
    if is_fixed(values.type):
        ranks = invert(sort_codes(order_codes(values).values).order).astype(np.int64)
    else:
        ranks = np.asarray(pc.rank(values, tiebreaker="dense")).astype(np.int64) - 1
    if largest_first:
        ranks = len(values) - 1 - ranks
    if values.null_count:
        ranks[np.asarray(values.is_null())] = NONE
    return Ranks(values, ranks)


class Measure(Protocol):
    @property
    def side(self) -> Side: ...
    @property
    def numbers(self) -> list[Numbers]: ...
    @property
    def ranks(self) -> list[Words]: ...
    def answer(self, groups: Groups, numbers: Sequence[Numbers], ranks: Sequence[Words]) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class Count:
    side: Side
    numbers: list[Numbers]  # 1, or 0 for null
    ranks: list[Words]

    def answer(self, groups: Groups, numbers: Sequence[Numbers], ranks: Sequence[Words]) -> pa.Array:
        return pa.array(groups.sum(numbers[0]))


@dataclass(frozen=True, slots=True)
class Sum:
    """Numbers are limbs, or one column of doubles. If there are nulls, a column of 1s (0 for null) is added."""

    side: Side
    numbers: list[Numbers]
    ranks: list[Words]
    column: PartialColumn
    summands: int  # how many of the numbers make up the sum

    def answer(self, groups: Groups, numbers: Sequence[Numbers], ranks: Sequence[Words]) -> pa.Array:
        values, flags = numbers[: self.summands], numbers[self.summands :]
        some = (groups.sum(flags[0]) if flags else groups.sizes) > 0
        type_ = self.column.type
        if pa.types.is_floating(type_):
            return pa.array(groups.sum(values[0]), mask=~some)
        total = decimals_of(groups.sum_limbs(values), type_.scale, some)
        if total is None:
            raise ConditionError(
                f"{self.column.text}: the sum has more than {type_.precision} digits. Cast the values to double, or to "
                "a decimal with fewer digits behind the point."
            )
        return total


@dataclass(frozen=True, slots=True)
class Extreme:
    side: Side
    numbers: list[Numbers]
    ranks: list[Words]
    order: Ranks

    def answer(self, groups: Groups, numbers: Sequence[Numbers], ranks: Sequence[Words]) -> pa.Array:
        return self.order.values_at(groups.smallest(ranks[0]))


@dataclass(frozen=True, slots=True)
class Coverage:
    """The length that intervals cover; it needs the pairs themselves."""

    side: Side
    starts: pa.Array
    ends: pa.Array
    type: pa.DataType
    numbers: list[Numbers]
    ranks: list[Words]

    def answer(self, groups: Groups, numbers: Sequence[Numbers], ranks: Sequence[Words]) -> pa.Array:
        raise AssertionError("what intervals cover does not follow from numbers")

    def covered(self, groups: Groups, items: tuple[Words, Words]) -> pa.Array:
        """The length of each group; null if it has no interval."""
        valid = np.asarray(pc.and_(pc.is_valid(self.starts), pc.is_valid(self.ends)))
        is_float = pa.types.is_floating(self.starts.type)
        starts, ends = (_line(column) for column in (self.starts, self.ends))
        if is_float:
            valid = valid & np.isfinite(starts) & np.isfinite(ends)
        kept = valid[items[1]]
        of_item, rows = items[0][kept], items[1][kept]
        starts, ends = starts[rows], ends[rows]
        lengths = np.zeros(len(groups.sizes), starts.dtype)
        if len(rows):
            add_lengths(np.lexsort([starts, of_item]), of_item, starts, ends, lengths)
        none = np.bincount(of_item, minlength=len(lengths)) == 0
        if pa.types.is_decimal(self.type):
            limbs = split_into_limbs(pa.array(lengths), 1)
            return decimals_of(limbs, self.type.scale, ~none)
        found = pa.array(lengths, mask=none)
        if not pa.types.is_duration(self.type):
            return found
        day = 86_400 if pa.types.is_date(self.starts.type) else 1
        return pc.multiply(found, day).cast(self.type)


def _line(column: pa.Array) -> Numbers:
    """Positions on a line: numbers, or codes for types that have discrete steps."""
    if pa.types.is_floating(column.type):
        return np.asarray(pc.fill_null(column.cast(pa.float64()), 0.0))
    return order_codes(column).values


def measure(
    column: PartialColumn,
    side: Side,
    values: pa.Array | None,
    left_rows: int,
    right_rows: int,
    flagged: bool = False,
) -> Measure:
    """`values` has one entry per row of `side`; None: count(*). `flagged`: sums also count their summands."""
    if values is None or (column.function == "count" and not values.null_count):
        return Count(Side.LEFT, [np.ones(left_rows, np.int64)], [])
    if column.function == "count":
        return Count(side, [_ones(values)], [])
    if column.function == "sum":
        if pa.types.is_floating(values.type):
            summands: list[Numbers] = [np.asarray(pc.fill_null(values.cast(pa.float64()), 0.0))]
        else:
            summands = [*split_into_limbs(values, right_rows)]  # no row has more pairs than this
        flags = [_ones(values)] if values.null_count or flagged else []
        return Sum(side, [*summands, *flags], [], column, len(summands))
    order = rank(values, largest_first=column.function == "max")
    return Extreme(side, [], [order.ranks], order)


def _ones(values: pa.Array) -> Words:
    return np.asarray(values.is_valid()).astype(np.int64)
