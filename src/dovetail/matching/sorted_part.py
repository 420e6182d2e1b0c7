"""Rows that are kept and probed by batches of the other side, sorted once if the class of predicate allows it.

    builder = PartBuilder(condition)        of the right side of the condition
    part    = builder.keep(batch)           a SortedPart, kept for many probes
    probes  = builder.probing(batch)        a ProbeBatch of the left side, sorted once for all parts
    probes.match(part)                      a matcher: pairs, counts, which rows have a partner

Two inequalities on keys with exact codes are merged (`kernels/two_inequalities.py`). Of three or more, the two are used
that the fewest pairs of a sample of rows and probes satisfy. Rows of other classes are best kept in the order of their
first key (`row_order`): they are prepared again for each batch of probes, and kernels sort them quickly if they are
already sorted.

Zone maps are the smallest and the largest join keys of a part; they show whether probes can match any of its rows.

    zones = ZoneMaps(condition)             of the right side of the condition
    zone  = zones.zone(batch)               of a part: a range of codes for each predicate that has one
    reach = zones.reach(probes)             of a batch of the left side: the codes that it can match
    can_match(reach, zone)                  False: no pair of them matches, and the part need not be read

Zone maps exist for equalities, inequalities, bands and overlaps of keys with exact codes. All of them must hold, so one
that excludes a part is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pyarrow as pa

from dovetail.columns.taking import take_rows
from dovetail.condition import Band, Condition, Equal, Less, Overlap, Predicate, closed_bounds, keyed_rows
from dovetail.condition.expression import Expression, type_of
from dovetail.condition.predicates import Rectangles, Strategy, keys_of
from dovetail.core.codes import LEAST, MOST, is_fixed, order_codes
from dovetail.core.rows import Rows, Side
from dovetail.kernels import three_inequalities, two_inequalities
from dovetail.kernels.band import code_floats
from dovetail.kernels.sorting import Sorted, sort_codes
from dovetail.kernels.two_inequalities import Arranged, Operators, OrderedPart
from dovetail.matching.equal_keys import equal_codes
from dovetail.matching.kernel_pairs import Flags, Prepared
from dovetail.matching.links import Attribute, Link
from dovetail.matching.matcher import Part, Parts, build_matcher, most_selective
from dovetail.matching.preparation import OPERATORS, Words, overlap_operators, read_operands

Zone = tuple[tuple[int, int], ...]
"""The smallest and the largest code per link."""

SAMPLE = 1024  # rows per side that decide between inequalities
ORDERS = ("first_order", "first_codes", "second_order", "second_codes", "second_to_first", "first_to_second")


@dataclass(frozen=True, slots=True)
class SortedPart:
    """Rows of the right side; with `part`, if they are sorted by two keys."""

    batch: pa.RecordBatch
    rows: Rows
    part: OrderedPart | None
    way: int = 0  # which pair of keys

    def only(self, chosen: Flags) -> SortedPart:
        """Some of the rows, with the same row numbers; only for sorted parts."""
        assert self.part is not None
        return replace(self, part=two_inequalities.without(self.part, ~chosen[self.rows]))

    @property
    def orders(self) -> pa.RecordBatch | None:
        """The sort orders of the rows, as columns that can be stored; None if they are not sorted."""
        part = self.part
        if part is None:
            return None
        columns = [self.rows, *part.first, *part.second, part.second_to_first, part.first_to_second]
        return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["rows", *ORDERS])


@dataclass(frozen=True, slots=True)
class _Way:
    """Two keys by which rows can be sorted."""

    strategy: Strategy
    operators: Operators


class PartBuilder:
    """Stores rows of the right side of a condition, and prepares left rows to probe them."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._drive = condition.strategy
        self._ways = tuple(_ways(self._drive))
        self.ways = len(self._ways)  # number of ways to sort rows
        self.sorts = self.ways > 0  # whether rows are kept sorted by two keys
        self.has_choice = self.ways > 1

    def keep(self, batch: pa.RecordBatch, probes: pa.RecordBatch | None = None, way: int = 0) -> SortedPart:
        """Keep these rows, sorted if possible. With several ways to sort them, some probes show which is best."""
        if not self._ways:
            return SortedPart(batch, np.arange(batch.num_rows), None)
        return self._sort_rows(batch, way if probes is None else self.best_way(batch, probes))

    def keep_some(self, kept: SortedPart, rows: Rows) -> SortedPart:
        """Prepare some of the kept rows, sorted by the same keys."""
        batch = take_rows(kept.batch, rows)
        return self.keep(batch) if kept.part is None else self._sort_rows(batch, kept.way)

    def _sort_rows(self, batch: pa.RecordBatch, way: int) -> SortedPart:
        rows, codes = self._codes(way, Side.RIGHT, batch)
        return SortedPart(batch, rows, two_inequalities.build(codes, self._ways[way].operators), way)

    def again(self, batch: pa.RecordBatch, orders: pa.RecordBatch | None, way: int) -> SortedPart:
        """Restore a part from its rows and orders."""
        if orders is None:
            return self.keep(batch)
        rows, *columns = (np.asarray(column) for column in orders.columns)
        first, second = Sorted(columns[0], columns[1]), Sorted(columns[2], columns[3])
        return SortedPart(batch, rows, OrderedPart(first, second, columns[4], columns[5], len(rows)), way)

    def probing(self, batch: pa.RecordBatch) -> ProbeBatch:
        return ProbeBatch(self, batch)

    def row_order(self, batch: pa.RecordBatch) -> Rows | None:
        """The order in which to keep the rows; None: as they are."""
        keys = self._drive.equal_keys or self._drive.ordered_keys[:1]
        if self._ways or not keys:
            return None
        rows, columns = keyed_rows(self._condition, Side.RIGHT, batch, [pair[Side.RIGHT] for pair in keys])
        if self._drive.equal:
            codes = equal_codes(columns)
        elif is_fixed(columns[0].type):
            codes = order_codes(columns[0]).values
        else:
            return None
        order = sort_codes(codes).order
        if rows is None:
            return order
        lost = np.ones(batch.num_rows, np.bool_)  # they match nothing, and come last
        lost[rows] = False
        return np.concatenate([rows[order], np.flatnonzero(lost)])

    def match(self, probing: ProbeBatch, kept: SortedPart) -> Parts:
        batches = (probing.batch, kept.batch)
        if kept.part is None:
            return build_matcher(self._condition, *batches)
        way = self._ways[kept.way]
        rows, arranged = probing.arranged(kept.way)
        join = two_inequalities.probe(arranged, kept.part, way.operators)
        checks = self._condition.conjuncts_beside(way.strategy.predicates)
        return Parts(batches, (Part(Prepared(two_inequalities, join), (rows, kept.rows), checks),))

    def arrange(self, batch: pa.RecordBatch, way: int) -> tuple[Rows, Arranged]:
        """Probes that can match, sorted."""
        rows, codes = self._codes(way, Side.LEFT, batch)
        return rows, two_inequalities.arrange(codes, self._ways[way].operators)

    def best_way(self, batch: pa.RecordBatch, probes: pa.RecordBatch) -> int:
        """The two keys that the fewest pairs satisfy, in a sample of both sides."""
        if not self.has_choice:
            return 0
        predicates = tuple(dict.fromkeys(p for way in self._ways for p in way.strategy.predicates))
        strategy = replace(self._drive, predicates=predicates)
        batches = (_some_of(probes), _some_of(batch))
        operands = read_operands(self._condition, batches, [], strategy.ordered_keys, metric=False)
        best = tuple(predicates[i] for i in most_selective(predicates, operands.ordered))
        return next(i for i, way in enumerate(self._ways) if way.strategy.predicates == best)

    def _codes(self, way: int, side: Side, batch: pa.RecordBatch) -> tuple[Rows, tuple[Words, Words]]:
        keys = [pair[side] for pair in self._ways[way].strategy.ordered_keys]
        rows, columns = keyed_rows(self._condition, side, batch, keys)
        first, second = (order_codes(column).values for column in columns)
        return (np.arange(batch.num_rows) if rows is None else rows), (first, second)


class ProbeBatch:
    """A batch of the left side."""

    def __init__(self, keeping: PartBuilder, batch: pa.RecordBatch) -> None:
        self._keeping = keeping
        self._arranged: dict[int, tuple[Rows, Arranged]] = {}
        self.batch = batch

    def match(self, kept: SortedPart) -> Parts:
        """The pairs of this batch and the kept rows."""
        return self._keeping.match(self, kept)

    def match_bounded(self, kept: SortedPart, least: Words, third: Words) -> Parts:
        """The pairs whose kept row has a `third` not less than `least` of the probe; for sorted rows only."""
        (part,) = self.match(kept).parts
        assert isinstance(part.listed, Prepared)
        rows, _ = self.arranged(kept.way)
        join = three_inequalities.prepare(part.listed.join, least[rows], third[kept.rows])
        return Parts((self.batch, kept.batch), (replace(part, listed=Prepared(three_inequalities, join)),))

    def arranged(self, way: int) -> tuple[Rows, Arranged]:
        if way not in self._arranged:
            self._arranged[way] = self._keeping.arrange(self.batch, way)
        return self._arranged[way]


def _ways(strategy: Strategy) -> list[_Way]:
    """Each pair of inequalities whose keys have exact codes; none for other conditions."""
    if strategy.equal:
        return []
    exact = [p for p in strategy.predicates if all(is_fixed(type_of(key)) for pair in keys_of(p) for key in pair)]
    if exact and isinstance(exact[0], Overlap):
        return [_Way(strategy, overlap_operators(exact[0]))]
    less = [p for p in exact if isinstance(p, Less)]
    return [
        _Way(replace(strategy, predicates=(first, second)), (OPERATORS[first.operator], OPERATORS[second.operator]))
        for first, second in combinations(less, 2)
    ]


def _some_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_rows <= SAMPLE:
        return batch
    return take_rows(batch, np.linspace(0, batch.num_rows - 1, SAMPLE).astype(np.int64))


class ZoneMaps:
    """Computes the zones of rows of the right side of a condition."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._links = tuple(link for predicate in condition.predicates for link in _links(predicate))

    @property
    def links(self) -> int:
        """The number of ranges in a zone."""
        return len(self._links)

    def zone(self, batch: pa.RecordBatch) -> Zone | None:
        """The zone of rows of the right side; None if none of them can match."""
        return self._ranges(Side.RIGHT, batch)

    def reach(self, batch: pa.RecordBatch) -> Zone | None:
        """The range of right codes that rows of the left side can match; None if they can match nothing."""
        ranges = self._ranges(Side.LEFT, batch)
        if ranges is None:
            return None
        return tuple(_reach(link, *ends) for link, ends in zip(self._links, ranges, strict=True))

    def _ranges(self, side: Side, batch: pa.RecordBatch) -> Zone | None:
        if not self._links:
            return ()
        keys = [link.attribute(side.alias).keys[0] for link in self._links]
        _, columns = keyed_rows(self._condition, side, batch, keys)
        if not len(columns[0]):
            return None
        codes = (order_codes(column).values for column in columns)
        return tuple((int(column.min()), int(column.max())) for column in codes)


def can_match(reach: Zone | None, zone: Zone | None) -> bool:
    """Whether a part with this zone can hold partners of probes with this reach."""
    if reach is None or zone is None:
        return False
    return all(low <= last and first <= high for (low, high), (first, last) in zip(reach, zone, strict=True))


def _links(predicate: Predicate) -> Iterator[Link]:
    """Ranges of codes that contain the partners of a row."""
    match predicate:
        case Equal(left, right):
            pairs: list[tuple[Expression, str, Expression]] = [(left, "=", right)]
        case Less(left, operator, right):
            pairs = [(left, operator, right)]
        case Overlap(left, right, low_closed, high_closed):
            pairs = [
                (left.low, "<=" if low_closed else "<", right.high),
                (left.high, ">=" if high_closed else ">", right.low),
            ]
        case Rectangles(x, y):
            yield from _links(x)
            yield from _links(y)
            return
        case Band(left, right) if is_fixed(type_of(left)):
            yield Link(*_attributes(left, right), band=closed_bounds(predicate))
            return
        case _:
            return
    for mine, sign, theirs in pairs:
        if is_fixed(type_of(mine)) and is_fixed(type_of(theirs)):
            yield Link(*_attributes(mine, theirs), sign)


def _attributes(left: Expression, right: Expression) -> tuple[Attribute, Attribute]:
    return Attribute(Side.LEFT.alias, (left,)), Attribute(Side.RIGHT.alias, (right,))


def _reach(link: Link, first: int, last: int) -> tuple[int, int]:
    """The right codes that left codes from first to last can match, given by the bounds at both ends."""
    codes = np.array([first, last])
    if link.band is not None and not isinstance(link.band[0], int) and not np.isfinite(code_floats(codes)).all():
        return LEAST, MOST  # infinities and NaN do not follow a band's arithmetic
    bounds = link.bounds(Side.LEFT.alias, codes)
    if bounds.low is not None and bounds.high is not None and (bounds.low > bounds.high).any():
        return LEAST, MOST  # beyond 64 bits at one end
    low = LEAST if bounds.low is None else int(bounds.low[0]) + (not bounds.low_closed)
    high = MOST if bounds.high is None else int(bounds.high[1]) - (not bounds.high_closed)
    return low, high
