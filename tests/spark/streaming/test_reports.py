"""Reports of cells, and the limit that they make known to each other: Spark's part is played by the test."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.effort import repeat
from tests.spark.streaming.test_state import MEMORY_BYTES, SCHEMAS, Handle, Results, Source, pairs, stream_join

from dovetail.core.metrics import Estimate
from dovetail.errors import StateError
from dovetail.routing.hash import HashRouter
from dovetail.spark.streaming import cell_state
from dovetail.spark.streaming.cell import JoinProcessor
from dovetail.spark.streaming.reports import Report, Reports, Totals
from dovetail.spark.streaming.stream_join import StreamJoin

CELLS = 3
END = pd.DataFrame({"side": [0, 1], "seq": [0, 0], "payload": [None, None]})


def test_reports_count_once_their_micro_batch_is_over(tmp_path: Path) -> None:
    first = Reports(tmp_path, 0)
    first.write(0, Report(5, 10, 3))
    first.write(1, Report(2, 20, 4))
    assert Reports(tmp_path, 0).totals() == Totals(0, None)  # another attempt
    after = Reports(tmp_path, 1)
    assert after.totals(share_rows=False) == Totals(7, Estimate(30, 25, 35, 0.95))
    assert after.totals(share_rows=True) == Totals(7, Estimate(30, 23, 37, 0.95))
    after.write(0, Report(8))
    assert after.totals() == Reports(tmp_path, 1).totals()
    assert Reports(tmp_path, 2).totals() == Totals(10, None)  # one cell has no estimate


def test_of_several_attempts_the_one_with_the_fewest_results_counts(tmp_path: Path) -> None:
    for emitted in (9, 4, 6):
        Reports(tmp_path, 3).write(0, Report(emitted))
    assert Reports(tmp_path, 4).totals().emitted == 4


def test_old_reports_are_removed(tmp_path: Path) -> None:
    for batch in range(20):
        Reports(tmp_path, batch).write(7, Report(batch // 2))
        assert len(list(tmp_path.iterdir())) <= 3
    assert Reports(tmp_path, 20).totals().emitted == 9


def test_an_estimate_is_no_less_than_what_was_emitted(tmp_path: Path) -> None:
    assert Report.from_estimate(12, Estimate(10.0, 8.0, 15.5, 0.95)) == Report(12, 12, 6)
    assert Report.from_estimate(12, None) == Report(12)


class Cells:
    """The cells of a join. Attempts at micro-batches fail here and there; timers expire as they are set."""

    def __init__(self, join: StreamJoin, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.join, self.rng, self.batch = join, rng, 0
        self.stored: dict[int, str] = {}
        self.timed: set[int] = set()
        self.found: Results = Counter()
        self.figures: list[dict[str, Any]] = []
        names = {"streaming.sql.batchId": lambda: str(self.batch), "sql.streaming.queryId": lambda: "query"}
        context = SimpleNamespace(getLocalProperty=lambda name: names[name](), partitionId=lambda: 0)
        monkeypatch.setattr(cell_state, "TaskContext", SimpleNamespace(get=lambda: context))
        monkeypatch.setattr("os.fsync", lambda handle: None)  # slow, and no power is lost here

    def run(self, rows: tuple[pa.RecordBatch, pa.RecordBatch] | None, *, end: bool = False) -> None:
        """One micro-batch, on the cells that rows come to and those whose timer has expired."""
        fed = {label: list(self._frames(label, rows)) + ([END] if end else []) for label in self.join.labels}
        for label in self.join.labels:
            if fed[label] or label in self.timed:
                while not self._attempt(label, fed[label]):
                    pass
        self.batch += 1

    def _frames(self, label: int, rows: tuple[pa.RecordBatch, pa.RecordBatch] | None) -> Iterator[pd.DataFrame]:
        for side, batch in enumerate(rows or ()):
            for packed in self.join.packer(side)(iter([batch])):
                frame = packed.to_pandas()
                frame = frame[frame["cell"] == label].drop(columns="cell").reset_index(drop=True)
                if len(frame):
                    yield frame

    def _attempt(self, label: int, frames: list[pd.DataFrame]) -> bool:
        handle = Handle(self.stored.get(label))
        processor = JoinProcessor(self.join)
        processor.start(handle, handle)  # type: ignore[arg-type]
        clock: Any = SimpleNamespace(getCurrentProcessingTimeInMs=lambda: 0)
        steps = (
            processor.handleInputRows((label,), iter(frames), clock)
            if frames
            else processor.handleExpiredTimer((label,), clock, None)
        )
        found: Results = Counter()
        for frame in steps:
            found += pairs(frame)
            if self.rng.random() < 0.1:
                return False
        assert handle.stored is not None
        self.stored[label] = handle.stored
        self.timed.discard(label)
        if handle.timers:
            self.timed.add(label)
        self.found += found
        self.figures.append({name: frame[name][0] for name in frame.columns if name != "payload"})
        return True


def join_in_cells(state_dir: Path, limit: int | None, algorithm: str, how: str = "inner") -> StreamJoin:
    join = stream_join(state_dir, algorithm=algorithm, memory_bytes=MEMORY_BYTES, how=how)
    setting = replace(join.setting, limit=limit, has_ends=True, latency_s=0.0)
    return replace(join, router=HashRouter(join.plan.condition, CELLS), setting=setting)


@pytest.mark.parametrize("algorithm", ["pmj", "adaptive", "diner", "shj"])
@pytest.mark.parametrize("seed", range(repeat(2)))
def test_cells_stop_at_the_limit(algorithm: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No fewer results than the limit, though attempts fail; then rows are dropped, and no timer is set."""
    rng, source = random.Random(f"{algorithm}{seed}"), Source(seed)
    limit = rng.randint(1, 60)
    cells = Cells(join_in_cells(tmp_path, limit, algorithm), rng, monkeypatch)
    for _ in range(40):
        cells.run(source.next())
    assert cells.found <= source.joined()
    assert limit <= cells.found.total() <= limit * CELLS
    assert cells.figures[-1]["limit_reached"] == 1
    assert not cells.timed
    before = cells.found.total()
    cells.run(source.next(), end=True)
    cells.run(source.next())  # rows after the end are no error once nothing more is wanted
    assert cells.found.total() == before


@pytest.mark.parametrize("how", ["inner", "left"])
def test_fewer_results_than_the_limit_are_all_emitted(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(1)
    cells = Cells(join_in_cells(tmp_path, 10**6, "pmj", how), random.Random(how), monkeypatch)
    for _ in range(6):
        cells.run(source.next())
    cells.run(None, end=True)
    while cells.timed:
        cells.run(None)
    assert cells.found == source.joined(how)
    assert not any(figures["limit_reached"] for figures in cells.figures)


def test_another_limit_on_restart_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows have been dropped for the first one."""
    rng, source = random.Random(0), Source(0)
    Cells(join_in_cells(tmp_path, 3, "pmj"), rng, monkeypatch).run(source.next())
    with pytest.raises(StateError, match="limit"):
        Cells(join_in_cells(tmp_path, 30, "pmj"), rng, monkeypatch).run(source.next())


def test_estimates_of_cells_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once both inputs have ended, before all is merged: an interval around the number of all results."""
    rng = np.random.default_rng(0)
    join = join_in_cells(tmp_path, None, "pmj")
    cells = Cells(join, random.Random(0), monkeypatch)
    monkeypatch.setattr("dovetail.spark.streaming.cell.REST_S", 0.0)  # a unit of background work in a micro-batch
    rows = 60_000
    keys = [rng.integers(0, 500, rows) for _ in range(2)]
    expected = int((np.bincount(keys[0], minlength=500) * np.bincount(keys[1], minlength=500)).sum())
    for start in range(0, rows, 2000):
        part = np.arange(start, start + 2000)
        left = {"k": keys[0][part], "a": part, "s": ["x"] * 2000}
        cells.run((pa.record_batch(left, SCHEMAS[0]), pa.record_batch({"k": keys[1][part], "b": part}, SCHEMAS[1])))
    assert all(figures["estimate"] is None for figures in cells.figures)
    cells.run(None, end=True)
    while cells.timed:
        cells.run(None)
    assert cells.found.total() == expected
    said = [figures for figures in cells.figures if figures["estimate"] is not None]
    early = [figures for figures in said if figures["emitted"] < 0.9 * expected]
    print([(f["emitted"], f["results"], f["spilled_rows"], f["estimate"], f["estimate_low"], f["estimate_high"]) for f in cells.figures][::3], expected)
    assert early
    assert all(figures["estimate_low"] <= expected <= figures["estimate_high"] for figures in early)
    assert all(abs(figures["estimate"] - expected) < 0.2 * expected for figures in early)
    assert Reports(tmp_path / "query/join/reports", 10**6).totals().estimate == (expected, expected, expected, 0.95)
