"""Windowed aggregates of streams: each left row at its arrival, with aggregates over its partners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from dovetail.condition import text_of
from dovetail.condition.select import parse_aggregates
from dovetail.core.rows import Side
from dovetail.errors import InputError, PlanError
from dovetail.planning.planner import InputFacts
from dovetail.request import Request
from dovetail.spark.frames.binding import after_join, bind_frames
from dovetail.spark.frames.planned import FrameJoin, Inputs
from dovetail.spark.frames.schemas import carried_schema, session_zone
from dovetail.spark.streaming.stream_plans import checked_window, window_join
from dovetail.spark.streaming.streams import join_streams
from dovetail.spark.streaming.window_join import window_inputs
from dovetail.spark.worker_python import prepare_workers


def aggregate_streams(request: Request, inputs: Inputs, aggregates: Mapping[str, str]) -> DataFrame:
    """Each left row at its arrival, with aggregates over its partners in the window of the right stream."""
    left, right = inputs
    prepare_workers(left.sparkSession)
    window = checked_window(request.window, left, right)
    bound = bind_frames(request.on, left, right, request.trusted)
    if bound.after:
        raise PlanError(
            f"only Spark can evaluate {text_of(bound.after[0])}, which needs pairs; join the streams instead."
        )
    schemas = (bound.visible(Side.LEFT), bound.visible(Side.RIGHT))
    wanted = parse_aggregates(aggregates, *schemas, session_zone(left))
    clash = [a.name for a in wanted if a.name in schemas[0].names]
    if clash:
        raise InputError(f"the left side has columns called {', '.join(clash)}: give the aggregates other names.")
    results = pa.schema([pa.field(a.name, a.type) for a in wanted])
    fields = [*left.schema.fields, *from_arrow_schema(results, prefer_timestamp_ntz=True).fields]
    asked = FrameJoin(request, inputs, bound, pa.schema([*schemas[0], *results]))
    join = window_join(asked, asked.plan(InputFacts("stream", on_spark=True, window=window)), window)
    joined = join_streams(window_inputs(bound.frames, join), replace(join, aggregates=wanted), carried_schema(fields))
    return after_join(joined, bound, fields)
