"""Chooses how three or more DataFrames are joined: as tables at rest, or as streams.

Rows visit the cells of a hypercube (routing/routers.py). Each result is found in exactly one cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField

from dovetail.condition import columns_of
from dovetail.condition.graph import Graph, parse_graph
from dovetail.errors import PlanError
from dovetail.execution.output import multi_schema
from dovetail.options import Where
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.planning.planner import InputFacts, plan_join
from dovetail.request import Request, named_inputs
from dovetail.routing.routers import hypercube
from dovetail.spark.frames.binding import decoded, encoded
from dovetail.spark.frames.renaming import by_position, renamed
from dovetail.spark.frames.schemas import arrow_schema, carried_schema, only_spark_compares, session_zone
from dovetail.spark.multiway.multi_streams import join_several_streams
from dovetail.spark.multiway.multi_tables import counted_hypercube, join_several_tables
from dovetail.spark.session.options import SOURCE
from dovetail.spark.session.settings import ignores_case, shuffle_partitions
from dovetail.spark.streaming.end_of_stream import without_ends
from dovetail.spark.streaming.watermarks import without_watermark
from dovetail.spark.worker_python import prepare_workers
from dovetail.storage.budget import bytes_of


def multijoin_dataframes(request: Request) -> DataFrame:
    """The join as a DataFrame."""
    inputs = named_inputs(request.inputs)
    plan = _plan(request, inputs)
    first = next(iter(inputs.values()))
    prepare_workers(first.sparkSession)
    schemas = plan.graph.schemas
    output = multi_schema(schemas, fold_case=ignores_case(first.sparkSession))
    fields = [
        StructField(out.name, field.dataType, field.nullable, field.metadata)
        for out, field in zip(output, (f for frame in inputs.values() for f in frame.schema.fields), strict=True)
    ]
    frames = {alias: encoded(by_position(frame)) for alias, frame in inputs.items()}
    if _streaming(inputs):
        fields = [without_watermark(field) for field in fields]  # rows may be emitted long after they arrived
        joined = join_several_streams(inputs, frames, plan, request, output, carried_schema(fields))
    else:
        joined = join_several_tables(frames, plan, request, output, carried_schema(fields))
    result = renamed(decoded(joined, fields), output.names)
    sources = [name for schema in schemas.values() for name in schema.names]
    return without_ends(result, sources) if request.end == SOURCE else result


def explain_several_dataframes(request: Request) -> JoinPlan:
    """The plan of a join of three or more DataFrames. Tables at rest are counted for it, as for the join."""
    inputs = named_inputs(request.inputs)
    plan = _plan(request, inputs)
    if _streaming(inputs):
        cells = request.cells or shuffle_partitions(next(iter(inputs.values())))
        router = hypercube(plan.graph, dict.fromkeys(inputs, 1), cells)
    else:
        router = counted_hypercube(plan.graph, inputs, request)
    choice = Choice("hypercube", "rows that match share exactly one cell of a grid of many dimensions")
    return replace(plan, router=choice, cells=router.cells, tasks=router.cells)


def _plan(request: Request, inputs: Mapping[str, DataFrame]) -> JoinPlan:
    """The plan of one cell."""
    request.refuse_outside(Where.SEVERAL_STREAMS if _streaming(inputs) else Where.SEVERAL_FRAMES)
    schemas = {alias: arrow_schema(frame) for alias, frame in inputs.items()}
    graph = parse_graph(request.on, schemas, zone=session_zone(next(iter(inputs.values()))))
    _check_compared(graph, inputs)
    facts = InputFacts("stream" if _streaming(inputs) else "at_rest", on_spark=True)
    memory_bytes, parameters = bytes_of(request.memory), request.parameters
    return plan_join(
        graph, request.how, facts, algorithm=request.algorithm, memory_bytes=memory_bytes, parameters=parameters
    )


def _streaming(inputs: Mapping[str, DataFrame]) -> bool:
    return any(frame.isStreaming for frame in inputs.values())


def _check_compared(graph: Graph, inputs: Mapping[str, DataFrame]) -> None:
    """Refuse columns that only Spark can compare."""
    read = {(e, c.name) for e, fs in graph.filters.items() for f in fs for c in columns_of(f)} | set(graph.wide)
    for edge in graph.edges:
        read |= {((edge.left, edge.right)[c.side], c.name) for e in edge.condition.conjuncts for c in columns_of(e)}
    for alias, name in sorted(read):
        if only_spark_compares(inputs[alias].schema[name]):
            raise PlanError(
                f"{alias}.{name} is compared by rules that only Spark has (collation, char(n), interval of months). "
                "Cast it before the join."
            )
