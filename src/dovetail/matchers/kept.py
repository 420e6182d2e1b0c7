"""Rows that are kept while batches of the other side come and go: sorted once, where the class of predicate allows.

    kept    = keep(condition, drive, batch)        the right side of the condition, for a long time
    probing = Probing(condition, drive, batch)     the left side, for a moment; sorted once for all that is kept
    probing.match(kept)                            a matcher: pairs, counts, who has a partner

Two inequalities on keys with exact codes are merged (`kernels/ordered_part.py`). All other classes are prepared anew
for each meeting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dovetail.batch import Rows, Side
from dovetail.condition import Condition, Less, Overlap, keyed_rows
from dovetail.condition.expression import type_of
from dovetail.kernels import ordered_part, three_inequalities, two_inequalities
from dovetail.kernels.ordered_part import Arranged, OrderedPart
from dovetail.kernels.sorting import Sorted
from dovetail.keys import is_fixed, order_codes
from dovetail.matchers.build import build_matcher
from dovetail.matchers.driving import Drive, choose_drive, to_check
from dovetail.matchers.listed import Prepared
from dovetail.matchers.operands import Words
from dovetail.matchers.parts import Part, Parts
from dovetail.matchers.prepare import OPERATORS, overlap_operators
from dovetail.matchers.protocol import Flags


def keeping_drive(condition: Condition) -> Drive:
    """As `choose_drive`, with two inequalities where there are more, so that all that is kept is sorted alike."""
    drive = choose_drive(condition)
    return replace(drive, predicates=drive.predicates[:2]) if drive.kind == "two_inequalities" else drive


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows of the right side; with a part, if they are sorted by two keys."""

    batch: pa.RecordBatch
    rows: Rows
    part: OrderedPart | None

    def only(self, chosen: Flags) -> Kept:
        """Some of the rows, with the numbers that they have; those of a part."""
        assert self.part is not None
        return replace(self, part=ordered_part.without(self.part, ~chosen[self.rows]))


def keep(condition: Condition, drive: Drive, batch: pa.RecordBatch) -> Kept:
    operators = _operators(drive)
    if operators is None:
        return Kept(batch, np.arange(batch.num_rows), None)
    rows, codes = _codes(condition, drive, Side.RIGHT, batch)
    return Kept(batch, rows, ordered_part.build(codes, operators))


ORDERS = ("first_order", "first_codes", "second_order", "second_codes", "second_to_first", "first_to_second")


def orders_of(kept: Kept) -> pa.RecordBatch | None:
    """How the rows are sorted, as columns that can be stored; None if they are not."""
    part = kept.part
    if part is None:
        return None
    columns = [kept.rows, *part.first, *part.second, part.second_to_first, part.first_to_second]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["rows", *ORDERS])


def kept_again(batch: pa.RecordBatch, orders: pa.RecordBatch) -> Kept:
    """What was kept before, from its rows and `orders_of` it."""
    rows, *columns = (np.asarray(column) for column in orders.columns)
    first, second = Sorted(columns[0], columns[1]), Sorted(columns[2], columns[3])
    return Kept(batch, rows, OrderedPart(first, second, columns[4], columns[5], len(rows)))


class Probing:
    """A batch of the left side."""

    def __init__(self, condition: Condition, drive: Drive, batch: pa.RecordBatch) -> None:
        self._condition = condition
        self._drive = drive
        self._operators = _operators(drive)
        self.batch = batch
        self._arranged: Arranged | None = None
        if self._operators is not None:
            self._rows, codes = _codes(condition, drive, Side.LEFT, batch)
            self._arranged = ordered_part.arrange(codes, self._operators)

    def match(self, kept: Kept) -> Parts:
        """The pairs of this batch and what is kept."""
        batches = (self.batch, kept.batch)
        if self._arranged is None or self._operators is None or kept.part is None:
            return build_matcher(self._condition, *batches)
        join = ordered_part.probe(self._arranged, kept.part, self._operators)
        checks = to_check(self._condition, self._drive.predicates)
        return Parts(batches, (Part(Prepared(two_inequalities, join), (self._rows, kept.rows), checks),))

    def match_bounded(self, kept: Kept, least: Words, third: Words) -> Parts:
        """The pairs in which the `third` of the kept row is not less than `least` of the probe; of sorted rows only."""
        (part,) = self.match(kept).parts
        assert isinstance(part.listed, Prepared)
        join = three_inequalities.prepare(part.listed.join, least[self._rows], third[kept.rows])
        return Parts((self.batch, kept.batch), (replace(part, listed=Prepared(three_inequalities, join)),))


def _operators(drive: Drive) -> tuple[int, int] | None:
    """Those of two inequalities whose keys have exact codes; None for everything else."""
    if drive.equal or not all(is_fixed(type_of(key)) for pair in drive.ordered_keys for key in pair):
        return None
    match drive.predicates:
        case [Less(_, first), Less(_, second)]:
            return OPERATORS[first], OPERATORS[second]
        case [Overlap() as overlap]:
            return overlap_operators(overlap)
    return None


def _codes(condition: Condition, drive: Drive, side: Side, batch: pa.RecordBatch) -> tuple[Rows, tuple[Words, Words]]:
    rows, columns = keyed_rows(condition, side, batch, [pair[side] for pair in drive.ordered_keys])
    first, second = (order_codes(column).values for column in columns)
    return (np.arange(batch.num_rows) if rows is None else rows), (first, second)
