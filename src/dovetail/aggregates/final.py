"""From merged partial results to the result: averages are divided, sums get their type."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.aggregates.columns import needed, partial_columns
from dovetail.condition.aggregates import Aggregate, GroupColumn
from dovetail.condition.expression import type_of
from dovetail.errors import ConditionError

COUNT = pa.decimal256(19, 0)


def result_schema(aggregates: Sequence[Aggregate], by: Sequence[GroupColumn]) -> pa.Schema:
    """The columns of the groups, then the aggregates."""
    groups = [pa.field(column.name, type_of(column.value)) for column in by]
    return pa.schema([*groups, *(pa.field(aggregate.name, aggregate.type) for aggregate in aggregates)])


def finish(aggregates: Sequence[Aggregate], by: Sequence[GroupColumn], partials: pa.RecordBatch) -> pa.RecordBatch:
    """The result of partial results in which every group has one row only."""
    known = dict(zip(partial_columns(aggregates), partials.columns[len(by) :], strict=True))
    columns = [_finished(aggregate, [known[column] for column in needed(aggregate)]) for aggregate in aggregates]
    return pa.RecordBatch.from_arrays([*partials.columns[: len(by)], *columns], schema=result_schema(aggregates, by))


def _finished(aggregate: Aggregate, columns: Sequence[pa.Array]) -> pa.Array:
    match aggregate.function:
        case "count":
            return pc.fill_null(columns[0], 0)  # merging no partial results at all gives null
        case "sum":
            return _in_type(aggregate, columns[0])
        case "avg":
            return _in_type(aggregate, _divided(aggregate.type, *columns))
    return columns[0]


def _divided(type_: pa.DataType, total: pa.Array, count: pa.Array) -> pa.Array:
    count = pc.if_else(pc.equal(count, 0), pa.scalar(None, pa.int64()), count)
    if pa.types.is_floating(type_):
        return pc.divide(total.cast(pa.float64()), count.cast(pa.float64()))
    wide = total.cast(pa.decimal256(total.type.precision, total.type.scale))
    quotient = pc.divide(wide, count.cast(COUNT))  # cut off, many digits behind the ones that are asked for
    return pc.round(quotient, type_.scale, "half_towards_infinity")


def _in_type(aggregate: Aggregate, values: pa.Array) -> pa.Array:
    try:
        return values.cast(aggregate.type)
    except pa.ArrowInvalid:
        raise ConditionError(_too_large(aggregate)) from None


def _too_large(aggregate: Aggregate) -> str:
    wider = "decimal(38, 0) or double" if pa.types.is_integer(aggregate.type) else "double"
    return f"{aggregate.text}: a value does not fit in {aggregate.type}. Cast what is aggregated to {wider}."
