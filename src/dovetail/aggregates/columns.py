"""What a partial result consists of: ordinary columns that can be merged, group by group, by sum, min or max.

    aggregate       partial columns                merged by
    count           count                          sum
    sum             sum, null if there is none     sum
    avg             sum, count                     sum, sum
    min, max        min, max                       min, max

Sums of integers and decimals are decimal128(38, scale), so that they are exact. Aggregates that need the same column
share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal as OneOf

import pyarrow as pa

from dovetail.condition import Expression, types
from dovetail.condition.aggregates import Aggregate, GroupColumn
from dovetail.condition.expression import type_of

Function = OneOf["count", "sum", "min", "max"]


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """function(value) over some of the pairs."""

    function: Function
    value: Expression | None  # None: count(*)
    text: str = field(compare=False)  # the aggregate as it was written

    @property
    def merge(self) -> OneOf["sum", "min", "max"]:
        """What makes one value of those of several partial results; nulls are ignored."""
        return "sum" if self.function == "count" else self.function

    @property
    def type(self) -> pa.DataType:
        if self.function == "count":
            return types.INT64
        assert self.value is not None
        type_ = type_of(self.value)
        if self.function != "sum":
            return type_
        if pa.types.is_floating(type_):
            return types.DOUBLE
        return pa.decimal128(types.MOST_DIGITS, type_.scale if pa.types.is_decimal(type_) else 0)


def needed(aggregate: Aggregate) -> tuple[PartialColumn, ...]:
    """The partial columns from which an aggregate is computed."""
    value, text = aggregate.value, aggregate.text
    if aggregate.function == "avg":
        return PartialColumn("sum", value, text), PartialColumn("count", value, text)
    return (PartialColumn(aggregate.function, value, text),)


def partial_columns(aggregates: Sequence[Aggregate]) -> tuple[PartialColumn, ...]:
    """Those of all aggregates, each once."""
    return tuple(dict.fromkeys(column for aggregate in aggregates for column in needed(aggregate)))


def partial_schema(aggregates: Sequence[Aggregate], by: Sequence[GroupColumn]) -> pa.Schema:
    """The columns of the groups (by0, by1, …), then the partial columns (partial0, partial1, …)."""
    groups = [pa.field(f"by{i}", type_of(column.value)) for i, column in enumerate(by)]
    columns = [pa.field(f"partial{i}", column.type) for i, column in enumerate(partial_columns(aggregates))]
    return pa.schema([*groups, *columns])
