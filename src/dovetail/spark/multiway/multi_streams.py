"""Joins of three or more streams that end: rows visit the cells of a hypercube, each of which runs its own operator.

Works like joins of two streams (streaming/streams.py, streaming/stream_cell.py): arriving rows emit results
immediately, spilling keeps to the budget, spilled rows are joined while the inputs are idle, and the rest when all
inputs have ended.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dovetail.condition.graph import Graph
from dovetail.errors import PlanError
from dovetail.planning.plan import JoinPlan
from dovetail.request import Request
from dovetail.routing.routers import hypercube
from dovetail.spark.session.options import AVAILABLE, SOURCE
from dovetail.spark.sources.columns import END
from dovetail.spark.streaming.end_of_stream import add_end_column
from dovetail.spark.streaming.stream_join import StreamJoin
from dovetail.spark.streaming.stream_plans import stream_setting
from dovetail.spark.streaming.streams import join_streams

Ends = str | Mapping[str, str] | None
"""The values of `end=`: SQL that is true of the last row of an input, one for all or one for each; or as for `join`."""


def join_several_streams(
    inputs: Mapping[str, DataFrame],
    frames: Mapping[str, DataFrame],
    plan: JoinPlan,
    request: Request,
    output: pa.Schema,
    schema: StructType,
) -> DataFrame:
    """The join as a streaming DataFrame. `frames` are the inputs with their columns named by position."""
    still = [alias for alias, frame in inputs.items() if not frame.isStreaming]
    if still:
        raise PlanError(f"{', '.join(still)}: these are at rest, and others are streams. Join them two at a time.")
    ends = _ends(plan.graph, request.end)
    setting = stream_setting(next(iter(inputs.values())), request, ends is not None, ends is None)
    router = hypercube(plan.graph, dict.fromkeys(plan.graph.aliases, 1), request.cells or setting.partitions)
    marked = [
        frame
        if ends is None
        else add_end_column(frame, inputs[alias].columns, ends[alias], alias, trusted=request.trusted)
        for alias, frame in frames.items()
    ]
    return join_streams(marked, StreamJoin(plan, (), output, setting, router), schema)


def _ends(graph: Graph, end: Ends) -> Mapping[str, str] | None:
    """The condition of the last row of each input. None: the available data is complete."""
    if end == AVAILABLE:
        return None
    if isinstance(end, str):
        return dict.fromkeys(graph.aliases, END if end == SOURCE else end)
    if isinstance(end, Mapping) and set(end) == set(graph.aliases) and all(isinstance(e, str) for e in end.values()):
        return end
    raise PlanError(
        "a join of several streams emits part of its output only when the inputs end, so it cannot run on unbounded "
        "streams. Set end= to a predicate for the end-of-stream row (end=\"kind = 'end'\"), to a dictionary with one "
        "for each input, to 'source' for sources of Dovetail, or to 'available' if the available data is complete; "
        f"got {end!r}."
    )
