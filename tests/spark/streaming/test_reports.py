"""Reports of cells, and the limit that cells coordinate with them. The test takes the role of Spark."""

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
from numpy.typing import NDArray
from tests.effort import repeat
from tests.spark.streaming.test_state import MEMORY_BYTES, SCHEMAS, Handle, Results, Source, pairs, stream_join

from dovetail.core.metrics import Estimate
from dovetail.errors import StateError
from dovetail.estimation.estimate import Estimator
from dovetail.routing.routers import HashRouter
from dovetail.spark.streaming import cell_state
from dovetail.spark.streaming.cell_processor import CellProcessor
from dovetail.spark.streaming.reports import Report, Reports, Totals
from dovetail.spark.streaming.stream_join import StreamJoin

Keys = NDArray[np.int64]

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
    """The cells of a join. Some attempts at micro-batches fail; timers expire as set."""

    def __init__(self, join: StreamJoin, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.join, self.rng, self.batch = join, rng, 0
        self.stored: dict[int, str] = {}
        self.timed: set[int] = set()
        self.found: Results = Counter()
        self.figures: list[dict[str, Any]] = []
        names = {"streaming.sql.batchId": lambda: str(self.batch), "sql.streaming.queryId": lambda: "query"}
        context = SimpleNamespace(getLocalProperty=lambda name: names[name](), partitionId=lambda: 0)
        monkeypatch.setattr(cell_state, "TaskContext", SimpleNamespace(get=lambda: context))
        monkeypatch.setattr("os.fsync", lambda handle: None)  # slow, and tests do not lose power

    def run(self, rows: tuple[pa.RecordBatch, pa.RecordBatch] | None, *, end: bool = False) -> None:
        """Run one micro-batch, on the cells with rows and on those whose timer has expired."""
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
        processor = CellProcessor(self.join)
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


def join_in_cells(
    state_dir: Path, limit: int | None, algorithm: str, how: str = "inner", memory_bytes: int = MEMORY_BYTES
) -> StreamJoin:
    join = stream_join(state_dir, algorithm=algorithm, memory_bytes=memory_bytes, how=how)
    setting = replace(join.setting, limit=limit, has_ends=True, latency_s=0.0)
    return replace(join, router=HashRouter(join.plan.condition, CELLS), setting=setting)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("algorithm", ["pmj", "adaptive", "diner", "shj"])
@pytest.mark.parametrize("seed", range(repeat(2)))
def test_cells_stop_at_the_limit(algorithm: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least `limit` results, even if attempts fail; after that rows are dropped, and no timer is set."""
    rng, source = random.Random(f"{algorithm}{seed}"), Source(seed)
    limit = rng.randint(1, 60)
    cells = Cells(join_in_cells(tmp_path, limit, algorithm), rng, monkeypatch)
    for _ in range(40):
        cells.run(source.next())
    assert cells.found <= source.joined()
    assert limit <= cells.found.total() <= limit * CELLS
    assert cells.figures[-1]["limit_reached"] == 1
    assert all(figures["estimate"] is None for figures in cells.figures)  # cells that stop do not know the total
    assert not cells.timed
    before = cells.found.total()
    cells.run(source.next(), end=True)
    cells.run(source.next())  # rows after the end are not an error once the limit is reached
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
    """Rows have been dropped because of the first limit."""
    rng, source = random.Random(0), Source(0)
    Cells(join_in_cells(tmp_path, 3, "pmj"), rng, monkeypatch).run(source.next())
    with pytest.raises(StateError, match="limit"):
        Cells(join_in_cells(tmp_path, 30, "pmj"), rng, monkeypatch).run(source.next())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("algorithm", [pytest.param("pmj", marks=pytest.mark.slow), "adaptive"])
def test_estimates_of_cells_add_up(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once both inputs have ended, and before the merge is complete, there is an estimate of all results."""
    rng, rows, distinct = np.random.default_rng(0), 24_000, 2000
    join = join_in_cells(tmp_path, None, algorithm, memory_bytes=1 << 17)
    cells = Cells(join, random.Random(0), monkeypatch)
    monkeypatch.setattr("dovetail.spark.streaming.pace.REST_S", 0.0)  # one unit of work per micro-batch
    keys = [rng.integers(0, distinct, rows) for _ in range(2)]
    expected = pairs_of(*keys)
    for part in np.array_split(np.arange(rows), 8):
        left = pa.record_batch({"k": keys[0][part], "a": part, "s": ["x"] * len(part)}, SCHEMAS[0])
        cells.run((left, pa.record_batch({"k": keys[1][part], "b": part}, SCHEMAS[1])))
    assert all(figures["estimate"] is None for figures in cells.figures)  # future rows are unknown
    cells.run(None, end=True)
    while cells.timed:
        cells.run(None)
    assert cells.found.total() == expected
    early = [f for f in cells.figures if f["estimate"] is not None and f["emitted"] < 0.9 * expected]
    assert early
    for figures in early:
        margin = figures["estimate_high"] - figures["estimate"]
        assert 0 < margin < 0.1 * expected
        assert abs(figures["estimate"] - expected) < 2 * margin
    assert Reports(tmp_path / "query/join/reports", 10**6).totals().estimate == (expected, expected, expected, 0.95)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_intervals_of_all_cells_hold_the_truth(skew: float) -> None:
    """In about 95 % of all cases, with blocks from a part of the rows."""
    rng, rows, distinct, trials = np.random.default_rng(1), 4000, 300, 300
    weights = 1.0 / np.arange(1, distinct + 1) ** skew
    held = 0
    for _ in range(trials):
        keys = rng.choice(distinct, (2, rows), p=weights / weights.sum())
        reports = []
        for cell in range(CELLS):
            left, right = (side[side % CELLS == cell] for side in keys)
            estimator = Estimator()
            for block in range(10):
                parts = [np.array_split(side, 40)[block] for side in (left, right)]
                estimator.add(len(parts[0]), len(parts[1]), pairs_of(parts[0], parts[1]))
            reports.append(Report.from_estimate(0, estimator.estimate(len(left), len(right))))
        estimate = Totals.from_reports(reports, share_rows=False).estimate
        assert estimate is not None
        held += estimate.low <= pairs_of(keys[0], keys[1]) <= estimate.high
    assert held >= 0.92 * trials


def pairs_of(left: Keys, right: Keys) -> int:
    """The number of pairs with equal keys."""
    size = int(max(left.max(), right.max())) + 1
    return int((np.bincount(left, minlength=size) * np.bincount(right, minlength=size)).sum())
