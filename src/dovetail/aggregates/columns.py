"""The columns of a partial result: ordinary columns that are merged per group by sum, min or max.

    aggregate       partial columns                merged by
    count           count                          sum
    sum             sum, null if there is none     sum
    avg             sum, count                     sum, sum
    min, max        min, max                       min, max
    min_by, …       the value itself               nothing: one cell has all partners

Sums of integers and decimals are decimal128(38, scale), so they are exact. Aggregates that need the same column share
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal as OneOf

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.condition import Expression, types
from dovetail.condition.expression import type_of
from dovetail.condition.select import Aggregate, GroupColumn
from dovetail.errors import ConditionError

Function = OneOf["count", "sum", "min", "max", "min_by", "max_by", "first", "last", "coverage"]
MERGED = ("count", "sum", "min", "max")


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """function(value) over some of the pairs."""

    function: Function
    value: Expression | None  # None: count(*)
    text: str = field(compare=False)  # the aggregate as written
    other: Expression | None = None  # a second expression that it reads
    final: pa.DataType | None = field(compare=False, default=None)  # the type of a value that is not merged

    @property
    def merge(self) -> OneOf["sum", "min", "max"]:
        """The function that merges the values of several partial results; nulls are ignored."""
        match self.function:
            case "count" | "sum":
                return "sum"
            case "min" | "max":
                return self.function
        raise ConditionError(f"{self.text}: {self.function} is computed where all partners are, and not merged.")

    @property
    def type(self) -> pa.DataType:
        if self.function == "count":
            return types.INT64
        if self.final is not None:
            return self.final
        assert self.value is not None
        type_ = type_of(self.value)
        if self.function != "sum":
            return type_
        if pa.types.is_floating(type_):
            return types.DOUBLE
        return pa.decimal128(types.MOST_DIGITS, type_.scale if pa.types.is_decimal(type_) else 0)


def columns_of(aggregate: Aggregate) -> tuple[PartialColumn, ...]:
    """The partial columns from which an aggregate is computed."""
    value, text = aggregate.value, aggregate.text
    if aggregate.function == "avg":
        return PartialColumn("sum", value, text), PartialColumn("count", value, text)
    if aggregate.function not in MERGED:
        return (PartialColumn(aggregate.function, value, text, aggregate.other, aggregate.type),)
    return (PartialColumn(aggregate.function, value, text),)


def partial_columns(aggregates: Sequence[Aggregate]) -> tuple[PartialColumn, ...]:
    """The partial columns of all aggregates, without duplicates."""
    return tuple(dict.fromkeys(column for aggregate in aggregates for column in columns_of(aggregate)))


def partial_schema(aggregates: Sequence[Aggregate], by: Sequence[GroupColumn]) -> pa.Schema:
    """The columns of the groups (by0, by1, …), then the partial columns (partial0, partial1, …)."""
    groups = [pa.field(f"by{i}", type_of(column.value)) for i, column in enumerate(by)]
    columns = [pa.field(f"partial{i}", column.type) for i, column in enumerate(partial_columns(aggregates))]
    return pa.schema([*groups, *columns])


COUNT = pa.decimal256(19, 0)


def result_schema(aggregates: Sequence[Aggregate], by: Sequence[GroupColumn]) -> pa.Schema:
    """The columns of the groups, then the aggregates."""
    groups = [pa.field(column.name, type_of(column.value)) for column in by]
    return pa.schema([*groups, *(pa.field(aggregate.name, aggregate.type) for aggregate in aggregates)])


def finish(aggregates: Sequence[Aggregate], by: Sequence[GroupColumn], partials: pa.RecordBatch) -> pa.RecordBatch:
    """The final result, from partial results with exactly one row per group."""
    known = dict(zip(partial_columns(aggregates), partials.columns[len(by) :], strict=True))
    columns = [
        _finish_aggregate(aggregate, [known[column] for column in columns_of(aggregate)]) for aggregate in aggregates
    ]
    return pa.RecordBatch.from_arrays([*partials.columns[: len(by)], *columns], schema=result_schema(aggregates, by))


def _finish_aggregate(aggregate: Aggregate, columns: Sequence[pa.Array]) -> pa.Array:
    match aggregate.function:
        case "count":
            return pc.fill_null(columns[0], 0)  # merging zero partial results gives null
        case "sum":
            return _in_type(aggregate, columns[0])
        case "avg":
            return _in_type(aggregate, _divide(aggregate.type, *columns))
    return columns[0]


def _divide(type_: pa.DataType, total: pa.Array, count: pa.Array) -> pa.Array:
    count = pc.if_else(pc.equal(count, 0), pa.scalar(None, pa.int64()), count)
    if pa.types.is_floating(type_):
        return pc.divide(total.cast(pa.float64()), count.cast(pa.float64()))
    wide = total.cast(pa.decimal256(total.type.precision, total.type.scale))
    quotient = pc.divide(wide, count.cast(COUNT))  # truncated, but with many more digits than the result keeps
    return pc.round(quotient, type_.scale, "half_towards_infinity")


def _in_type(aggregate: Aggregate, values: pa.Array) -> pa.Array:
    try:
        return values.cast(aggregate.type)
    except pa.ArrowInvalid:
        raise ConditionError(_too_large(aggregate)) from None


def _too_large(aggregate: Aggregate) -> str:
    wider = "decimal(38, 0) or double" if pa.types.is_integer(aggregate.type) else "double"
    return f"{aggregate.text}: a value does not fit in {aggregate.type}. Cast what is aggregated to {wider}."
