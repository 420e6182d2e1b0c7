"""A windowed join of streams without Spark: its cells run in turn, on micro-batches defined by a test."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.spark.streaming.window_oracle import Results, Source

from dovetail.condition import parse
from dovetail.core.figures import FIGURES, FORMER
from dovetail.core.join_types import JoinType
from dovetail.execution.output import output_schema
from dovetail.planning.planner import InputFacts, plan_join
from dovetail.routing import window_cells, window_router
from dovetail.spark.exchange.packing import from_bytes
from dovetail.spark.streaming import as_of_join, cell_state, window_join
from dovetail.spark.streaming.cell_processor import CellProcessor
from dovetail.spark.streaming.stream_join import CellJoin, Setting
from dovetail.spark.streaming.window_join import WindowJoin
from dovetail.storage import segments
from dovetail.window import Window

Tables = tuple[pa.Table, pa.Table]
"""Tables with row numbers in the column left_row or right_row."""


def played(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Takes the role of Spark; needs the `query` whose tasks run."""
    running = SimpleNamespace(query=None)
    monkeypatch.setattr("pyspark.TaskContext", SimpleNamespace(get=lambda: running.query))
    for module in (window_join, as_of_join, cell_state):
        monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: running.query))
    for kept in ("_mapped", "_made"):
        monkeypatch.setattr(segments, kept, OrderedDict())
    monkeypatch.setattr(segments, "_verified", {})
    monkeypatch.setattr("os.fsync", lambda handle: None)  # slow, and tests do not lose power
    return running


@dataclass
class Handle:
    """A state store with one key."""

    stored: str | None = None
    timers: list[int] = field(default_factory=list)

    def registerTimer(self, at: int) -> None:
        self.timers.append(at)

    def deleteTimer(self, at: int) -> None:
        if at in self.timers:
            self.timers.remove(at)

    def get(self) -> tuple[str] | None:
        return None if self.stored is None else (self.stored,)

    def update(self, value: tuple[str]) -> None:
        (self.stored,) = value


@dataclass(frozen=True)
class Clock:
    """The time of a micro-batch."""

    now: int
    watermark_ms: int = 0

    def getCurrentProcessingTimeInMs(self) -> int:
        return self.now

    def getCurrentWatermarkInMs(self) -> int:
        return self.watermark_ms


@dataclass
class Query:
    """A query that runs one micro-batch after the other, on all cells."""

    tables: Tables
    join: CellJoin
    batch_id: int = 0
    partition: int = 0
    manifests: dict[int, str] = field(default_factory=dict)
    timers: dict[int, list[int]] = field(default_factory=dict)  # by cell, if they depend on the watermark

    def getLocalProperty(self, name: str) -> str:
        return str(self.batch_id) if name == "streaming.sql.batchId" else "query"

    def partitionId(self) -> int:
        return self.partition

    def micro_batch(
        self, sources: list[Source], rng: random.Random, watermark_ms: int = 0
    ) -> tuple[Results, dict[str, int]]:
        packed = []
        for self.partition, (side, rows) in enumerate(sources):
            table = self.tables[side].take(np.array(rows, np.int64)).combine_chunks()
            batches = table.to_batches(max_chunksize=rng.choice([1, 4, 100]))
            pack = self.join.packer(side)
            packed += [row for batch in pack(iter(batches)) for row in batch.to_pylist()]
        rng.shuffle(packed)  # a shuffle does not preserve order
        found: Results = Counter()
        figures = dict.fromkeys(FIGURES, 0)
        handles = {label: Handle(text, list(self.timers.get(label, ()))) for label, text in self.manifests.items()}
        clock: Any = Clock(0, watermark_ms)
        fed = {row["cell"] for row in packed}
        for label in [*sorted(fed), *sorted(self.manifests)]:  # cells called by timers come last
            handle = handles.setdefault(label, Handle())
            processor = CellProcessor(self.join)
            processor.start(handle, handle)  # type: ignore[arg-type]
            if label in fed:
                fed.remove(label)
                mine = [row for row in packed if row["cell"] == label]
                frames = iter([pd.DataFrame(mine[:2]), pd.DataFrame(mine[2:])] if mine[2:] else [pd.DataFrame(mine)])
                given = [processor.handleInputRows((label,), frames, clock)]
            else:
                expired = [at for at in handle.timers if at <= watermark_ms] if self.join.clock == "EventTime" else []
                given = [processor.handleExpiredTimer((label,), clock, None) for _ in expired]
                handle.timers = [at for at in handle.timers if at not in expired]
            for frame in chain.from_iterable(given):
                for name, figure in FIGURES.items():
                    counted = figures[name], int(frame[name][0] or 0)
                    figures[name] = sum(counted) if figure.over_cells == "sum" else max(counted)
                if frame["payload"][0] is not None:
                    found.update(_pairs(from_bytes(frame["payload"][0])))
        self.manifests = {label: handle.stored for label, handle in handles.items() if handle.stored is not None}
        self.timers = {label: handle.timers for label, handle in handles.items()}
        self.batch_id += 1
        return found, figures | {name: sum(figures[part] for part in parts) for name, parts in FORMER.items()}

    def files(self) -> list[Path]:
        return [*Path(str(self.join.setting.state_dir)).glob("query/dovetail/cell-*/*")]


def _pairs(batch: pa.RecordBatch) -> Iterator[tuple[int | None, int | None]]:
    name = next((name for name in ("right_row", "left_row_r") if name in batch.schema.names), None)
    rights = [None] * batch.num_rows if name is None else batch[name].to_pylist()
    return zip(batch["left_row"].to_pylist(), rights, strict=True)


def query(
    tables: Tables,
    on: str,
    how: str,
    bounds: Window,
    state_dir: Path | str,
    *,
    cells: int,
    partitions: int = 3,
    memory_bytes: int | None = None,
) -> Query:
    schemas = (tables[0].schema, tables[1].schema)
    condition = parse(on, *schemas)
    facts = InputFacts("stream", on_spark=True, window=bounds)
    plan = plan_join(condition, how, facts, memory_bytes=memory_bytes)
    output = output_schema(*schemas, "_r", JoinType(how))
    cells = window_cells(condition, JoinType(how), cells)
    router, _ = window_router(condition, JoinType(how), cells)
    setting = Setting(partitions, str(state_dir), "dovetail")
    join = WindowJoin(plan, (0, 0), output, setting, window=bounds, cells=cells, router=router)
    return Query(tables, join)
