"""Joins with a limit: at most this many rows of the result, and no work beyond them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.disjunctions import table
from tests.effort import some
from tests.seed import seeded

import dovetail
from dovetail.errors import InputError, PlanError
from dovetail.execution import at_rest
from dovetail.matching import Parts, build_matcher

TYPES = ("inner", "left", "right", "full", "left_semi", "left_anti")
CONDITIONS = (
    "l.a = r.a",
    "l.x < r.x",
    "l.x < r.x AND l.y > r.y",
    "l.x < r.x AND l.a + r.b > 3",
    "l.a = r.a OR l.b = r.b",
    "abs(l.x - r.x) <= 0.5",
    "l.x + r.y = 3",
    "l.a > 5",
)


def rows_of(result: pa.Table) -> Counter[str]:
    return Counter(map(str, result.to_pylist()))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("on", "how", "memory"), some(list(product(CONDITIONS, TYPES, (None, 66_000))), 0))
def test_any_rows_of_the_result(on: str, how: str, memory: int | None) -> None:
    rng = seeded(f"{on}{how}")
    left, right = table(rng, 300), table(rng, 200)
    whole = dovetail.join(left, right, on, how)
    rows = rows_of(whole)
    for limit in (0, 1, 7, 150, whole.num_rows, whole.num_rows + 1):
        found = dovetail.join(left, right, on, how, memory=memory, limit=limit)
        assert found.num_rows == min(limit, whole.num_rows)
        assert found.schema == whole.schema
        assert not rows_of(found) - rows


@pytest.mark.parametrize("algorithm", ["shj", "pmj", "diner", "nested_loop", "diag"])
def test_named_algorithms(algorithm: str) -> None:
    left = pa.table({"k": range(1000), "x": range(1000)})
    right = pa.table({"k": [k // 2 for k in range(1000)], "y": range(1000)})
    whole = dovetail.join(left, right, "l.k = r.k")
    for limit in (0, 1, 99, 5000):
        found = dovetail.join(left, right, "l.k = r.k", algorithm=algorithm, limit=limit)
        assert found.num_rows == min(limit, whole.num_rows)
        assert not rows_of(found) - rows_of(whole)


@pytest.mark.parametrize("limit", [-1, 1.5, "10", True])
def test_what_is_no_limit(limit: Any) -> None:
    rows = pa.table({"x": [1, 2]})
    with pytest.raises(InputError, match="limit must be an integer, 0 or more"):
        dovetail.join(rows, rows, "l.x = r.x", limit=limit)
    with pytest.raises(InputError, match="limit must be an integer, 0 or more"):
        dovetail.progressive(rows, rows, "l.x = r.x", limit=limit)


def test_explain_shows_the_limit() -> None:
    rows = pa.table({"x": [1, 2]})
    for progressive in (False, True):
        plan = dovetail.explain(rows, rows, "l.x = r.x", limit=1000, progressive=progressive)
        assert "limit      1,000 rows, after which the join stops" in plan.explain()
    with pytest.raises(InputError, match="limit must be an integer"):
        dovetail.explain(rows, rows, "l.x = r.x", limit=-3)


@pytest.fixture
def matchers(monkeypatch: pytest.MonkeyPatch) -> list[Parts]:
    """All matchers that a join at rest builds; they count the candidates checked."""
    built: list[Parts] = []

    def build(*args: Any) -> Parts:
        built.append(build_matcher(*args))
        return built[-1]

    monkeypatch.setattr(at_rest, "build_matcher", build)
    return built


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "left_semi"])
@pytest.mark.parametrize("on", ["l.x < r.x", "l.x < r.x AND l.x + r.x != 3", "l.x < r.x OR l.y < r.y"])
def test_few_candidates_are_looked_at(on: str, how: str, matchers: list[Parts]) -> None:
    rng = np.random.default_rng(0)
    left, right = (pa.table({"x": rng.random(50_000), "y": rng.random(50_000)}) for _ in range(2))
    assert dovetail.join(left, right, on, how, limit=100).num_rows == 100
    everything = left.num_rows * right.num_rows // 2
    assert sum(matcher.seen for matcher in matchers) < everything / 20


def test_progressive_ends_with_the_last_row() -> None:
    left, right = pa.table({"x": range(2000)}), pa.table({"x": range(2000)})
    for limit in (0, 1, 1234):
        steps = list(dovetail.progressive(left, right, "l.x <= r.x", limit=limit))
        assert sum(step.batch.num_rows for step in steps) == limit
        assert [step.results for step in steps[-1:]] == [limit] * bool(limit)
    three = {alias: pa.table({"x": range(50)}) for alias in "abc"}
    steps = list(dovetail.progressive(three, on="a.x = b.x AND b.x = c.x", limit=20))
    assert sum(step.batch.num_rows for step in steps) == 20
    with pytest.raises(PlanError, match="limit= cannot be combined with aggregates"):
        dovetail.progressive(left, right, "l.x = r.x", limit=5, aggregate={"n": "count(*)"})


class Endless(Iterator[pa.RecordBatch]):
    """An endless reader."""

    schema = pa.schema([("x", pa.int64())])
    closed = False

    def __next__(self) -> pa.RecordBatch:
        return pa.record_batch({"x": pa.array(range(100), pa.int64())})

    def close(self) -> None:
        self.closed = True


def test_sources_without_an_end_are_closed() -> None:
    left, right = Endless(), Endless()
    steps = dovetail.progressive(left, right, "l.x = r.x", memory=None, limit=1000)
    assert sum(step.batch.num_rows for step in steps) == 1000
    assert left.closed
    assert right.closed


def test_progressive_of_several_workers_and_recorded(tmp_path: Path) -> None:
    left, right = pa.table({"x": range(5000)}), pa.table({"x": range(5000)})
    steps = dovetail.progressive(left, right, "l.x = r.x", workers=2, limit=321)
    assert sum(step.batch.num_rows for step in steps) == 321
    recording = dovetail.Recording()
    steps = dovetail.progressive(left, right, "l.x = r.x", record=recording, limit=321)
    assert sum(step.batch.num_rows for step in steps) == 321
    pq.write_table(left, tmp_path / "left.parquet")
    assert dovetail.join(tmp_path / "left.parquet", right, "l.x < r.x", limit=10).num_rows == 10
