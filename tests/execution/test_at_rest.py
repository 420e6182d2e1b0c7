import numpy as np
import pyarrow as pa
import pytest

import dovetail
from dovetail.columns.batches import one_batch
from dovetail.condition import parse
from dovetail.core.metrics import Progress
from dovetail.execution import at_rest

LEFT = pa.table({"x": np.arange(2000), "y": np.arange(2000) % 10})
RIGHT = pa.table({"x": np.arange(1000, 3000), "z": np.arange(2000) % 10})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report totals immediately, in chunks small enough to show progress."""
    watch = at_rest.Watch
    monkeypatch.setattr(at_rest, "PATIENCE_S", 0.0)
    monkeypatch.setattr(at_rest, "Watch", lambda observer: watch(observer, lambda: 0.0))
    monkeypatch.setattr(at_rest, "CHUNK", 1 << 16)


def reports(on: str, how: str = "inner") -> tuple[list[Progress], int]:
    told: list[Progress] = []
    result = dovetail.join(LEFT, RIGHT, on, how, progress=told.append)
    return told, result.num_rows


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("on", ["l.x < r.x", "l.x < r.x AND l.y > r.z", "abs(l.x - r.x) <= 200", "l.y = r.z"])
def test_exact_totals_where_nothing_is_checked(on: str) -> None:
    told, rows = reports(on)
    assert told[0] == Progress("preparing")
    assert {p.phase for p in told[1:]} == {"joining"}
    assert {(p.total, p.exact) for p in told[1:]} == {(rows, True)}
    results = [p.results for p in told]
    assert len(results) > 3
    assert results == sorted(results)
    assert results[-1] == rows


@pytest.mark.usefixtures("impatient")
def test_estimates_where_candidates_are_checked() -> None:
    told, rows = reports("l.x < r.x AND (l.y * r.z) % 4 = 0")
    estimates = [p for p in told if p.total is not None and p.results]
    assert len(estimates) > 3
    assert not any(p.exact for p in estimates)
    assert all(abs(p.total - rows) < 0.1 * rows for p in estimates if p.total is not None)
    assert estimates[-1] == Progress("joining", rows, rows, exact=False)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_rows_without_a_partner_come_on_top(how: str) -> None:
    told, rows = reports("l.x = r.x", how)
    assert told[-1] == Progress("joining", rows, 1000, exact=False)


def test_one_sided_joins_know_their_total() -> None:
    told, rows = reports("l.x = r.x", "left_anti")
    assert told == [Progress("preparing"), Progress("joining", rows, rows)]


def test_a_short_join_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = at_rest.Watch
    monkeypatch.setattr(at_rest, "Watch", lambda observer: watch(observer, lambda: 0.0))  # busy machines take a second
    told, rows = reports("l.x < r.x")
    assert {p.total for p in told} == {None}
    assert told[-1].results == rows


def test_an_operator_has_no_total() -> None:
    told: list[Progress] = []
    result = dovetail.join(LEFT, RIGHT, "l.x = r.x", algorithm="shj", progress=told.append)
    assert told[-1] == Progress("joining", result.num_rows)


def test_pairs_are_counted_after_longer_than_was_prepared() -> None:
    times = iter([0.0, 20.0, 20.0, 79.0, 80.0])
    told: list[Progress] = []
    watch = at_rest.Watch(told.append, lambda: next(times))
    batch = one_batch(LEFT, LEFT.schema)
    matcher = at_rest.build_matcher(parse("l.x = r.x", LEFT.schema, LEFT.schema), batch, batch)
    watch.start_pairs(matcher, [matcher], pairs_only=True)
    list(watch.count_batches(iter([batch, batch])))
    assert [p.total for p in told] == [None, None, None, 2000]
