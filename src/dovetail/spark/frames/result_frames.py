"""Builds the columns of a join's DataFrame as requested; checks that keys are unique.

`ResultColumns` says which columns are wanted; Spark selects them here. Results that tasks write without Spark rows are
still written that way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.condition import Column, quote_name, spark_sql
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.execution.unique_keys import UNIQUE, keys_of, not_unique
from dovetail.request import Request
from dovetail.result_columns import MARK, ResultColumns
from dovetail.spark.exchange.arrow_tasks import Part
from dovetail.spark.frames.binding import bind_frames
from dovetail.spark.frames.renaming import by_position, position_name, renamed
from dovetail.spark.frames.schemas import arrow_schema
from dovetail.spark.frames.sink import PartedJoin, join_behind, remember_join
from dovetail.spark.session.settings import ignores_case


def columns_of_result(request: Request) -> ResultColumns:
    """The columns of a join of two DataFrames."""
    left, right = request.input_list
    fold_case = ignores_case(left.sparkSession)
    if request.call in ("asof", "nearest"):  # their `on` is not a condition: no columns are shared
        schemas = (arrow_schema(left), arrow_schema(right))
        return ResultColumns.plain(schemas, JoinType.read(request.how), request.suffix)
    return ResultColumns.of(request, arrow_schema(left), arrow_schema(right), fold_case=fold_case)


def joined_request(request: Request, columns: ResultColumns) -> Request:
    """The request for joined rows: inputs with marks if the indicator needs them, and only some columns."""
    if columns.joined_names is not None:
        request = request.but(columns=columns.joined_names)
    if not columns.marked:
        return request
    frames = [
        frame.withColumn(MARK.format(side.name.lower()), F.lit(True)) if side in columns.marked else frame
        for side, frame in zip(Side, request.input_list, strict=True)
    ]
    return replace(request, inputs=tuple(frames))


def frame_of_result(joined: DataFrame, columns: ResultColumns) -> DataFrame:
    """Turn joined rows into rows of the result."""
    if columns.is_plain or not joined.columns:
        return joined
    selected = [
        F.coalesce(*(F.col(position_name(columns.place(side, part.at(side)))) for side in columns.source(part)))
        if len(columns.source(part)) > 1
        else F.col(position_name(columns.place(columns.source(part)[0], part.at(columns.source(part)[0]))))
        for part in columns.parts
    ]
    names = [part.name for part in columns.parts]
    if columns.indicator is not None:
        selected.append(_origin(columns))
        names.append(columns.indicator)
    result = renamed(by_position(joined).select(*selected), names)
    if columns.names is not None and list(columns.names) != names:
        result = result.select(*map(quote_name, columns.names))
    join = join_behind(joined)
    return result if join is None else remember_join(result, _Shaped(join, columns))


def _origin(columns: ResultColumns) -> SparkColumn:
    if columns.how.only is not None:
        return F.lit("both" if columns.how is JoinType.LEFT_SEMI else "left_only")
    origin = F.lit("both")
    for side in columns.marked:
        only = "right_only" if side is Side.LEFT else "left_only"
        origin = F.when(F.col(position_name(columns.mark(side))).isNull(), only).otherwise(origin)
    return origin


@dataclass(frozen=True)
class _Shaped:
    """A join whose tasks return rows of the result."""

    join: PartedJoin
    columns: ResultColumns

    @property
    def parts(self) -> int:
        return self.join.parts

    def hits(self) -> Part:
        return partial(_shape, self.join.hits(), self.columns)

    def rest(self) -> Iterable[DataFrame]:
        return (frame_of_result(frame, self.columns) for frame in self.join.rest())


def _shape(part: Part, columns: ResultColumns, number: int) -> Iterator[pa.RecordBatch]:
    return map(columns.of_batch, part(number))


def check_unique(request: Request) -> None:
    """`validate=`: runs a job for each side whose keys must be unique."""
    left, right = request.input_list
    bound = bind_frames(request.on, left, right, request.trusted)
    for side in UNIQUE[request.validate]:
        keys = keys_of(bound.condition)[side]
        names = bound.condition.schema(side).names

        def position(column: Column, names: list[str] = names) -> str:
            return position_name(names.index(column.name))

        frame = bound.frames[side]
        for part in bound.condition.filters[side]:
            frame = frame.where(F.expr(spark_sql(part, position)))
        values = [F.expr(spark_sql(key, position)).alias(f"k{number}") for number, key in enumerate(keys)]
        counts = frame.select(*values).dropna().groupBy(*(f"k{number}" for number in range(len(keys)))).count()
        again = counts.where("count > 1").limit(1).collect()
        if again:
            *found, times = again[0]
            raise not_unique(request.validate, side, keys, found, times)
