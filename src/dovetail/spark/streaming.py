"""Joins of two streams: one stateful operator per cell, state as immutable segments.

    left  --route, pack--+
                         +--> groupBy(cell).transformWithStateInPandas --> unpack --> a streaming DataFrame
    right --route, pack--+        |
                                  +-- state store: the manifest (a few hundred bytes, committed with the micro-batch)
                                  +-- state_dir:   segments, written before the manifest that names them

A micro-batch restores the operator from the manifest, lets the new rows arrive, freezes what is new into segments and
stores the next manifest. If it fails at any point, Spark runs it again from the manifest of the last commit; segments
that no manifest names are swept later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues
from pyspark.sql.types import StructType

from dovetail.batch import Arrival, Side
from dovetail.errors import PlanError
from dovetail.metrics import Counters
from dovetail.operators import operator_class
from dovetail.operators.protocol import Manifest, Workspace
from dovetail.plan import JoinPlan
from dovetail.routers.protocol import Router
from dovetail.runtimes.driver import Driver
from dovetail.runtimes.output import result_batches
from dovetail.spark.packing import PACKED, collected, from_bytes, packer, to_bytes
from dovetail.spark.partitions import spread_labels
from dovetail.spark.state import check_layout
from dovetail.spark.workers import settle
from dovetail.state.budget import Budget
from dovetail.state.segments import SegmentStore

BATCH_ROWS = 1 << 16
FORMAT = 1  # of the segments, with the hashes in them: to be raised when a release writes others
RESULTS = "payload binary"


@dataclass(frozen=True, slots=True)
class StreamJoin:
    """All that the workers need to know; travels with the query."""

    plan: JoinPlan
    router: Router
    partitions: int  # of Spark's state store
    state_dir: str
    drop: tuple[int, int]  # key columns at the end of each side that are not part of the result
    schema: pa.Schema  # of the result
    metrics: str  # the name of our figures in the query's progress, and of the join in the state directory

    @property
    def layout(self) -> dict[str, Any]:
        """All that must stay the same for the state to mean the same. Ready for JSON."""
        condition = self.plan.condition
        return {
            "format": FORMAT,
            "condition": condition.text,
            "algorithm": self.plan.operator.name,
            "cells": self.plan.cells,
            "partitions": self.partitions,  # they decide on the labels of the cells
            "keys": [str(equality.left.type) for equality in condition.equalities],  # with the session's time zone
            "columns": [[[field.name, str(field.type)] for field in condition.schema(side)] for side in Side],
        }


def join_streams(frames: tuple[DataFrame, DataFrame], join: StreamJoin, schema: StructType) -> DataFrame:
    """The join of two streams as a streaming DataFrame, for any sink."""
    labels = spread_labels(join.router.cells, join.partitions)
    packed = [
        frames[side].mapInArrow(packer(side, join.router, join.plan.condition.schema(side), labels), PACKED)
        for side in Side
    ]
    joined = (
        packed[0]
        .unionAll(packed[1])
        .groupBy("cell")
        .transformWithStateInPandas(
            statefulProcessor=JoinProcessor(join), outputStructType=RESULTS, outputMode="Append", timeMode="None"
        )
    )
    results = joined.mapInArrow(unpack, schema)
    try:
        return results.observe(join.metrics, F.count(F.lit(1)).alias("results"))
    except AnalysisException as error:  # its name is also the name of its state, so that it must be unique
        raise PlanError(
            f"a query has two joins called {join.metrics!r}: give one of them another name, as in metrics='second'."
        ) from error


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packed results as rows."""
    for batch in batches:
        for payload in batch.column("payload"):
            yield from_bytes(payload.as_buffer())
    settle()


class JoinProcessor(StatefulProcessor):
    """Runs the plan's operator on one cell, one micro-batch at a time."""

    def __init__(self, join: StreamJoin) -> None:
        self._join = join

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._manifest = handle.getValueState("manifest", "manifest string")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,
    ) -> Iterator[pd.DataFrame]:
        (cell,) = key
        document = self._manifest.get()
        stored = None if document is None else json.loads(document[0])
        segments = SegmentStore(cell_directory(self._join, cell))
        workspace = self._workspace(segments)
        operator = operator_class(self._join.plan.operator.name)(workspace)
        if stored is not None:
            operator.restore(Manifest(stored["version"], stored["state"], tuple(stored["segments"])))
        for batch in collected(self._results(Driver(operator, workspace), rows)):
            yield pd.DataFrame({"payload": [to_bytes(batch).to_pybytes()]})
        manifest = operator.snapshot()
        if stored is not None:
            segments.sweep(stored["version"], [*stored["segments"], *stored["previous"]])
        self._manifest.update((json.dumps(_document(manifest, stored)),))

    def close(self) -> None:
        settle()

    def _workspace(self, segments: SegmentStore) -> Workspace:
        counters = Counters()
        budget = Budget(self._join.plan.memory_bytes, "bytes", counters)
        return Workspace(self._join.plan.condition, budget, segments, BATCH_ROWS, counters)

    def _results(self, driver: Driver, rows: Iterator[pd.DataFrame]) -> Iterator[pa.RecordBatch]:
        for frame in rows:
            for side, payload in zip(frame["side"], frame["payload"], strict=True):
                for _, pairs in driver.handle(Arrival(Side(side), from_bytes(payload))):
                    yield from result_batches(pairs, self._join.schema, drop=self._join.drop)


def _document(manifest: Manifest, stored: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "version": manifest.version,
        "state": manifest.state,
        "segments": manifest.segments,
        "previous": stored["segments"] if stored is not None else [],
    }


def cell_directory(join: StreamJoin, cell: int) -> Path:
    """Where this query keeps the segments of a cell. The query's id stays the same when it is started again."""
    context = TaskContext.get()
    assert context is not None, "cells are joined inside Spark tasks"
    query = str(context.getLocalProperty("sql.streaming.queryId"))
    directory = Path(join.state_dir) / query / quote(join.metrics, safe="")
    check_layout(directory, join.layout)
    return directory / f"cell-{cell}"
