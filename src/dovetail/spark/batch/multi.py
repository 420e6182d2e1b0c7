"""Joins of several DataFrames: streams, or tables at rest through one shuffle of packed batches.

every input --route, pack--> one task for some cells each, join, unpack --> DataFrame

Rows visit the cells of a hypercube (routing/routers.py): each result is found in exactly one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it
from pyspark.sql.types import StructField

from dovetail.condition import columns_of
from dovetail.condition.graph import Graph, parse_graph
from dovetail.errors import InputError, PlanError
from dovetail.execution.multiway import join_several
from dovetail.execution.output import multi_schema
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.planning.planner import InputFacts, plan_join
from dovetail.routing.routers import Hypercube, hypercube
from dovetail.sources.protocol import TableScan
from dovetail.spark.batch.tables import FEWEST_TASKS, ROWS_PER_TASK, in_fixed_order
from dovetail.spark.exchange.arrow_tasks import map_in_arrow
from dovetail.spark.exchange.labels import repartition_by_id
from dovetail.spark.exchange.packing import PACKED, Rewrite, from_bytes, multi_packer
from dovetail.spark.frames.binding import by_position, decoded, encoded
from dovetail.spark.frames.schemas import arrow_schema, carried_schema, only_spark_compares, session_zone
from dovetail.spark.session.options import SOURCE, Options
from dovetail.spark.session.settings import shuffle_partitions
from dovetail.spark.session.workers import settle
from dovetail.spark.sources.columns import END
from dovetail.spark.streaming.multi_streams import join_several_streams
from dovetail.spark.streaming.watermarks import without_watermark
from dovetail.spark.worker_python import prepare_workers


def multijoin_dataframes(
    inputs: Mapping[str, DataFrame], on: Any, *, memory_bytes: int | None, algorithm: str, **given: Any
) -> DataFrame:
    """The join as a DataFrame."""
    end = given.pop("end", None)
    options, parameters = Options.split(given, algorithm)
    first = next(iter(inputs.values()))
    prepare_workers(first.sparkSession)
    plan = _plan(inputs, on, memory_bytes, algorithm, parameters)
    schemas = plan.graph.schemas
    output = multi_schema(schemas, fold_case=first.sparkSession.conf.get("spark.sql.caseSensitive") != "true")
    fields = [
        StructField(out.name, field.dataType, field.nullable, field.metadata)
        for out, field in zip(output, (f for frame in inputs.values() for f in frame.schema.fields), strict=True)
    ]
    frames = {alias: encoded(by_position(frame)) for alias, frame in inputs.items()}
    if _streaming(inputs):
        fields = [without_watermark(field) for field in fields]  # rows may have waited for long
        joined = join_several_streams(inputs, frames, plan, end, options, output, carried_schema(fields))
    else:
        if end is not None:
            raise InputError("end= is for streams only.")
        router = _router(plan.graph, frames, options)
        joined = map_in_arrow(_in_cells(frames, router), joined_cells(plan, output), carried_schema(fields))
    result = decoded(joined, fields).toDF(*output.names)
    if end != SOURCE:
        return result
    ends = [name == END for schema in schemas.values() for name in schema.names]  # the marks of the sources
    return result.drop(*(name for name, is_end in zip(output.names, ends, strict=True) if is_end))


def explain_several_dataframes(
    inputs: Mapping[str, DataFrame], on: Any, *, memory_bytes: int | None, algorithm: str, **given: Any
) -> JoinPlan:
    """The plan of a join of several DataFrames; those at rest are counted for it, as the join does."""
    given.pop("end", None)
    options, parameters = Options.split(given, algorithm)
    plan = _plan(inputs, on, memory_bytes, algorithm, parameters)
    if _streaming(inputs):
        cells = options.cells or shuffle_partitions(next(iter(inputs.values())))
        router = hypercube(plan.graph, dict.fromkeys(inputs, 1), cells)
    else:
        router = _router(plan.graph, inputs, options)
    choice = Choice("hypercube", "rows that match share exactly one cell of a grid of many dimensions")
    return replace(plan, router=choice, cells=router.cells, tasks=router.cells)


def _plan(
    inputs: Mapping[str, DataFrame],
    on: Any,
    memory_bytes: int | None,
    algorithm: str,
    parameters: Mapping[str, Any],
) -> JoinPlan:
    """The plan of one cell."""
    schemas = {alias: arrow_schema(frame) for alias, frame in inputs.items()}
    graph = parse_graph(on, schemas, zone=session_zone(next(iter(inputs.values()))))
    _check_compared(graph, inputs)
    facts = InputFacts("stream" if _streaming(inputs) else "at_rest", on_spark=True)
    return plan_join(graph, facts=facts, algorithm=algorithm, memory_bytes=memory_bytes, parameters=parameters)


def _streaming(inputs: Mapping[str, DataFrame]) -> bool:
    return any(frame.isStreaming for frame in inputs.values())


def _check_compared(graph: Graph, inputs: Mapping[str, DataFrame]) -> None:
    """Refuses columns that only Spark knows how to compare."""
    read = {(e, c.name) for e, fs in graph.filters.items() for f in fs for c in columns_of(f)} | set(graph.wide)
    for edge in graph.edges:
        read |= {((edge.left, edge.right)[c.side], c.name) for e in edge.condition.conjuncts for c in columns_of(e)}
    for alias, name in sorted(read):
        if only_spark_compares(inputs[alias].schema[name]):
            raise PlanError(
                f"{alias}.{name} is compared by rules that only Spark has (collation, char(n), interval of months). "
                "Cast it before the join."
            )


def _router(graph: Graph, frames: Mapping[str, DataFrame], options: Options) -> Hypercube:
    rows = {alias: frame.count() if options.sample else 1 for alias, frame in frames.items()}
    if options.cells is not None:
        return hypercube(graph, rows, options.cells)
    most = max(shuffle_partitions(next(iter(frames.values()))), FEWEST_TASKS)
    return hypercube(graph, rows, min(most, max(FEWEST_TASKS, math.ceil(sum(rows.values()) / ROWS_PER_TASK))))


def _in_cells(frames: Mapping[str, DataFrame], router: Hypercube) -> DataFrame:
    """Rows of all inputs, brought together by cell."""
    packed = None
    for number, (alias, frame) in enumerate(frames.items()):
        frame = in_fixed_order(frame) if router.needs_spread(alias) else frame
        rows = frame.mapInArrow(multi_packer(router, number), PACKED)
        packed = rows if packed is None else packed.unionAll(rows)
    if packed is None:
        raise InputError("there is nothing to join.")
    return repartition_by_id(packed, router.cells, F.col("cell")).sortWithinPartitions("cell", "side", "seq")


def joined_cells(plan: JoinPlan, output: pa.Schema) -> Rewrite:
    """A function for mapInArrow that joins one cell after the other."""
    graph = plan.graph

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, rows in groupby(_unpack_rows(batches), key=lambda packed: packed[0]):
            found: dict[str, list[pa.RecordBatch]] = {alias: [] for alias in graph.aliases}
            for _, number, batch in rows:
                found[graph.aliases[number]].append(batch)
            if all(found.values()):
                tables = {a: TableScan(pa.Table.from_batches(mine, graph.schemas[a])) for a, mine in found.items()}
                yield from join_several(plan, tables, output)
        settle()

    return join


def _unpack_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    for batch in batches:
        cells, numbers = batch.column("cell").to_pylist(), batch.column("side").to_pylist()
        for cell, number, payload in zip(cells, numbers, batch.column("payload"), strict=True):
            yield cell, number, from_bytes(payload.as_buffer())
