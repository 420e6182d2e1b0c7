"""Joins of DataFrames: at rest through one shuffle of packed batches, streams through a stateful operator.

left  --route, pack--+                                              +--> DataFrame
                     +--> one partition per cell, join, unpack -----+
right --route, pack--+                                              +--> Spark's own filters, where needed
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it
from pyspark.sql.types import GeographyType, GeometryType, MapType, StructField, VariantType

from dovetail.batch import Side
from dovetail.condition import text_of
from dovetail.errors import InputError, PlanError
from dovetail.operators import operator_class
from dovetail.plan import Choice, JoinPlan
from dovetail.planner import plan_join
from dovetail.routers.hash import HashRouter
from dovetail.routers.one_bucket import OneBucketRouter
from dovetail.routers.protocol import Router
from dovetail.runtimes.output import output_schema
from dovetail.spark.binding import Bound, after_join, bind_frames
from dovetail.spark.cell import cell_joiner
from dovetail.spark.packing import PACKED, packer
from dovetail.spark.sampling import SideSample, heavy_keys, measured_row_bytes, sample_side
from dovetail.spark.schemas import parts_of, result_schema
from dovetail.spark.state import state_directory, use_rocksdb
from dovetail.spark.streaming import StreamJoin, join_streams

ROWS_PER_CELL = 250_000  # of both sides together, where the number of cells is ours to choose
FEWEST_CELLS = 4
TABLE_BYTES = 48  # most that a hash table takes for a row, besides the row itself
EMPTY_TABLE_BYTES = 20 * 1024
UNEVEN = 1.5  # how much fuller than the average a cell may be

GEO = (GeographyType, GeometryType)
AT_ARRIVAL = ("shj",)  # operators that leave no pair for later, as streams need


@dataclass(frozen=True, slots=True)
class Options:
    """What `dovetail.join` takes for Spark besides the arguments of every join."""

    cells: int | None = None  # how many parts the join is cut into; None: from a sample
    sample: bool = True  # look at the keys first: balances cells, splits heavy keys
    state_dir: str | None = None  # streams: where segments are kept; must outlive restarts
    metrics: str = "dovetail"  # streams: the name of our figures in observedMetrics of the query's progress

    @classmethod
    def read(cls, given: dict[str, Any]) -> Options:
        unknown = sorted(given.keys() - cls.__dataclass_fields__.keys())
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise InputError(f"{', '.join(unknown)}: no such option of a join on Spark. There are {known}.")
        options = cls(**given)
        if options.cells is not None and not (type(options.cells) is int and options.cells > 0):
            raise InputError(f"cells must be a positive number; got {options.cells!r}.")
        return options


def join_dataframes(
    left: DataFrame,
    right: DataFrame,
    on: Any,
    how: str,
    *,
    suffix: str,
    window: Any,
    memory_bytes: int | None,
    algorithm: str,
    **given: Any,
) -> DataFrame:
    """The join as a DataFrame; a streaming one if the inputs stream."""
    options = Options.read(given)
    if window is not None:
        raise PlanError("windows are not available yet.")
    join = _join_streams if _streaming(left, right) else _join_tables
    bound = bind_frames(on, left, right)
    return join((left, right), bound, _plan(bound, how, algorithm, memory_bytes), options, suffix)


def explain_dataframes(
    left: DataFrame,
    right: DataFrame,
    on: Any,
    how: str,
    *,
    memory_bytes: int | None,
    algorithm: str,
    **given: Any,
) -> JoinPlan:
    """The plan of a join; samples the inputs where the join itself would."""
    options = Options.read(given)
    streaming = _streaming(left, right)
    bound = bind_frames(on, left, right)
    plan = _plan(bound, how, algorithm, memory_bytes)
    if streaming:
        return _stream_plan(plan, left, options)[0]
    return _table_plan(bound, plan, options).plan


def _plan(bound: Bound, how: str, algorithm: str, memory_bytes: int | None) -> JoinPlan:
    """The plan of one cell."""
    plan = plan_join(bound.condition, how, algorithm=algorithm, memory_bytes=memory_bytes)
    checked = tuple(f"{text_of(part)} can be checked by Spark only, on every joined row" for part in bound.after)
    return replace(plan, advice=(*plan.advice, *checked))


def _output(bound: Bound, suffix: str, frame: DataFrame) -> pa.Schema:
    """The schema of the result. Where Spark ignores case, a name that differs in case only clashes, too."""
    left, right = bound.visible(Side.LEFT), bound.visible(Side.RIGHT)
    if frame.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
        taken = {name.lower() for name in left.names}
        clashing = [f.name not in left.names and f.name.lower() in taken for f in right]
        right = pa.schema([f.with_name(f.name + suffix) if c else f for f, c in zip(right, clashing, strict=True)])
    return output_schema(left, right, suffix)


# Tables at rest.


@dataclass(frozen=True, slots=True)
class _TablePlan:
    plan: JoinPlan
    router: Router
    first: Side  # the smaller side: it comes first and is kept


def _join_tables(
    inputs: tuple[DataFrame, DataFrame], bound: Bound, plan: JoinPlan, options: Options, suffix: str
) -> DataFrame:
    schema = _output(bound, suffix, inputs[0])
    planned = _table_plan(bound, plan, options)
    packed = []
    for side in Side:
        frame = bound.frames[side]
        if planned.router.deals:
            frame = in_fixed_order(frame)
        packed.append(frame.mapInArrow(packer(side, planned.router, bound.condition.schema(side)), PACKED))
    side_order = F.col("side") if planned.first is Side.LEFT else F.col("side").desc()
    cells = packed[0].unionAll(packed[1]).repartitionById(planned.plan.cells, "cell")
    joined = cells.sortWithinPartitions(side_order, "seq").mapInArrow(
        cell_joiner(planned.plan, planned.first, bound.extra, schema), result_schema(*inputs, schema.names)
    )
    return after_join(joined, bound, inputs)


def _table_plan(bound: Bound, plan: JoinPlan, options: Options) -> _TablePlan:
    condition = bound.condition
    samples = [
        sample_side(bound.frames[side], condition, side) if options.sample else SideSample.unknown() for side in Side
    ]
    first = Side.LEFT if samples[0].rows <= samples[1].rows else Side.RIGHT
    cells = options.cells or _cells(samples, bound, plan, first)
    if plan.operator.name == "nested_loop" or not condition.equalities:
        grid = OneBucketRouter.shaped(condition, cells, samples[0].rows, samples[1].rows)
        why = f"a grid of {grid.lines} x {grid.columns}, in which any two rows meet once"
        return _TablePlan(replace(plan, router=Choice("one_bucket", why), cells=grid.cells), grid, first)
    heavy = heavy_keys(samples[0], samples[1], cells)
    why = f"equal keys share a cell; {len(heavy)} heavy keys are split" if options.sample else "equal keys share a cell"
    return _TablePlan(
        replace(plan, router=Choice("hash", why), cells=cells), HashRouter(condition, cells, heavy), first
    )


def _cells(samples: list[SideSample], bound: Bound, plan: JoinPlan, first: Side) -> int:
    """Enough cells for all cores, for small tasks, and for the smaller side of a cell to fit its budget."""
    partitions = _partitions(bound.frames[0])
    rows = samples[0].rows + samples[1].rows
    cells = min(max(FEWEST_CELLS, -(-rows // ROWS_PER_CELL)), max(partitions, FEWEST_CELLS))
    if plan.memory_bytes is None or operator_class(plan.operator.name).spills or not samples[first].rows:
        return cells
    row_bytes = max(bound.row_bytes(first), measured_row_bytes(bound.frames[first]))
    kept = samples[first].rows * (row_bytes + TABLE_BYTES) * UNEVEN
    return max(cells, math.ceil(kept / (plan.memory_bytes - EMPTY_TABLE_BYTES)))


def in_fixed_order(frame: DataFrame) -> DataFrame:
    """Rows in an order that a repeated task sees again, so that dealing them out by position is repeatable.

    Rows that are equal may change places, which changes nothing.
    """
    contents = [content for field in frame.schema.fields if (content := _content(field)) is not None]
    return frame.sortWithinPartitions(F.xxhash64(*contents)) if contents else frame


def _content(field: StructField) -> Column | None:
    """The column in a form that Spark can hash; None for geometry inside of other types, which it cannot even print."""
    if isinstance(field.dataType, GEO):
        return F.expr(f"st_asbinary({field.name})")
    parts = list(parts_of(field.dataType))
    if any(isinstance(part, GEO) for part in parts):
        return None
    if any(isinstance(part, MapType | VariantType) for part in parts):
        return F.to_json(F.struct(field.name), {"ignoreNullFields": "false"})
    return F.col(field.name)


# Streams.


def _join_streams(
    inputs: tuple[DataFrame, DataFrame], bound: Bound, plan: JoinPlan, options: Options, suffix: str
) -> DataFrame:
    schema = _output(bound, suffix, inputs[0])
    plan, router = _stream_plan(plan, inputs[0], options)
    spark = inputs[0].sparkSession
    use_rocksdb(spark)
    directory = state_directory(options.state_dir, spark)
    join = StreamJoin(plan, router, _partitions(inputs[0]), directory, bound.extra, schema, options.metrics)
    joined = join_streams(bound.frames, join, result_schema(*inputs, schema.names))
    return after_join(joined, bound, inputs)


def _stream_plan(plan: JoinPlan, frame: DataFrame, options: Options) -> tuple[JoinPlan, Router]:
    condition = plan.condition
    if not condition.equalities:
        raise PlanError(
            f"{condition.text} has no equality between the two streams: without a window every row would have to be "
            "compared with every other for ever. Add an equality."
        )
    if plan.operator.name not in AT_ARRIVAL:
        raise PlanError(
            f"algorithm={plan.operator.name!r} leaves pairs for later, which a stream without end never comes to. "
            f"Give one of {', '.join(AT_ARRIVAL)}, or leave it to us."
        )
    cells = options.cells or _partitions(frame)
    choice = Choice("hash", "equal keys share a cell, one per state partition")
    return replace(plan, router=choice, cells=cells), HashRouter(condition, cells)


def _partitions(frame: DataFrame) -> int:
    return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)


def _streaming(left: DataFrame, right: DataFrame) -> bool:
    if left.isStreaming != right.isStreaming:
        raise PlanError("one input is a stream and the other a table at rest; give two streams, or two tables.")
    return left.isStreaming
