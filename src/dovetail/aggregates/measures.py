"""How each partial column is computed: numbers to add up over pairs, or ranks of which the smallest counts.

A measure gives one number or rank per row of its side. It gets them back per left row, over all pairs of that row, and
makes one value per group of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.aggregates.columns import PartialColumn
from dovetail.aggregates.groups import Groups
from dovetail.aggregates.limbs import decimals, split
from dovetail.core.codes import is_fixed, order_codes
from dovetail.core.rows import Side
from dovetail.errors import ConditionError
from dovetail.kernels.sorting import invert, sort_codes
from dovetail.matching.kernel_pairs import NONE, Numbers, Words


@dataclass(frozen=True, slots=True)
class Ranks:
    """The smaller the rank, the smaller (or the larger) the value. Null has the rank NONE."""

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
    """Ranks from 0 on. NaN is the largest number."""
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
    numbers: list[Numbers]  # 1 or, for null, 0
    ranks: list[Words]

    def answer(self, groups: Groups, numbers: Sequence[Numbers], ranks: Sequence[Words]) -> pa.Array:
        return pa.array(groups.sum(numbers[0]))


@dataclass(frozen=True, slots=True)
class Sum:
    """Numbers are limbs, or one column of doubles; where there are nulls, also 1 or, for null, 0."""

    side: Side
    numbers: list[Numbers]
    ranks: list[Words]
    column: PartialColumn
    summands: int  # how many of the numbers are added up to be the sum

    def answer(self, groups: Groups, numbers: Sequence[Numbers], ranks: Sequence[Words]) -> pa.Array:
        values, flags = numbers[: self.summands], numbers[self.summands :]
        some = (groups.sum(flags[0]) if flags else groups.sizes) > 0
        type_ = self.column.type
        if pa.types.is_floating(type_):
            return pa.array(groups.sum(values[0]), mask=~some)
        total = decimals(groups.sum_limbs(values), type_.scale, some)
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


def measure(column: PartialColumn, side: Side, values: pa.Array | None, left_rows: int, right_rows: int) -> Measure:
    """`values` has one entry per row of `side`; None: count(*)."""
    if values is None or (column.function == "count" and not values.null_count):
        return Count(Side.LEFT, [np.ones(left_rows, np.int64)], [])
    if column.function == "count":
        return Count(side, [_ones(values)], [])
    if column.function == "sum":
        if pa.types.is_floating(values.type):
            summands: list[Numbers] = [np.asarray(pc.fill_null(values.cast(pa.float64()), 0.0))]
        else:
            summands = [*split(values, right_rows)]  # no row has more pairs than that
        flags = [_ones(values)] if values.null_count else []
        return Sum(side, [*summands, *flags], [], column, len(summands))
    order = rank(values, largest_first=column.function == "max")
    return Extreme(side, [], [order.ranks], order)


def _ones(values: pa.Array) -> Words:
    return np.asarray(values.is_valid()).astype(np.int64)
