"""Joins of streams as lines and as recordings, from Spark's progress reports."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail import finish, follow
from dovetail.errors import InputError
from dovetail.monitoring import snapshot as figures_of
from dovetail.monitoring import spark_streams
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.report import report
from dovetail.monitoring.snapshot import DONE, FAILED, RUNNING
from dovetail.monitoring.spark_streams import Listening, in_short, source_name
from dovetail.monitoring.terminal import line


class Figures(SimpleNamespace):
    def asDict(self) -> dict[str, Any]:  # noqa: N802  as Spark calls it
        return vars(self)


class Query:
    """A query that completes one more micro-batch each time it is polled."""

    def __init__(self, *steps: dict[str, Any]) -> None:
        self._steps, self._seen = steps, 0

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802  as Spark calls it
        self._seen += 1
        return self._seen >= len(self._steps)

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802  as Spark calls it
        return list(self._steps[: self._seen])


def step(batch: int, rows: int, stored: int = 2, second: float = 0, **figures: Any) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{second:06.3f}Z",
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 500},
        "observedMetrics": {"dovetail": Figures(**figures)} if figures else None,
        "stateOperators": [{"numRowsTotal": stored}],
    }


def test_a_line_for_each_micro_batch_that_did_something() -> None:
    windowed = {"resident_rows": 1000, "spilled_rows": 4000, "late_rows": 2, "probe_us": 12_400, "merge_us": 900}
    windowed |= {"state_bytes": 64_000_000, "cells": 2, "largest_cell_rows": 3000}
    query = Query(
        step(0, 1000, results=30_000, **windowed),
        step(1, 0, results=0, **windowed),
        step(2, 0, results=7, resident_rows=0, late_rows=None, probe_us=0, merge_us=0),
        step(3, 4, results=1, resident_rows=2, spilled_rows=7, state_bytes=1000, cells=2, largest_cell_rows=9),
        step(4, 0, results=6, resident_rows=2, spilled_rows=7, estimate=1200, estimate_low=1150, estimate_high=1260),
    )
    out = io.StringIO()
    follow(query, file=out)
    header, *lines = [line.split("  ") for line in out.getvalue().splitlines()]
    assert [word.strip() for word in header if word] == [
        *("batch", "rows in", "rows/s", "results", "estimate", "kept rows"),
        *("state", "skew", "late", "probe", "merge", "took"),
    ]
    cells = [[word.strip() for word in line if word] for line in lines]
    assert cells[0] == ["0", "1,000", "2,000", "30,000", "-", "5,000", "64 MB", "1.20", "2", "12 ms", "1 ms", "0.50 s"]
    assert cells[1][:4] == ["2", "0", "0", "7"]  # from closed windows
    assert cells[2] == ["3", "4", "8", "1", "-", "9", "1 kB", "2.00", "-", "-", "-", "0.50 s"]
    assert cells[3][:6] == ["4", "0", "0", "6", "1,200 ±60", "9"]


def batches_in(out: io.StringIO) -> list[list[str]]:
    """The number of each micro-batch, with its rows and results."""
    return [[line.split()[column] for column in (0, 1, 3)] for line in out.getvalue().splitlines()[1:]]


def test_what_the_query_fails_with_is_raised() -> None:
    """The micro-batches before the failure are printed first."""

    def fails(timeout: float) -> bool:
        raise RuntimeError("the disk is full")

    out = io.StringIO()
    with pytest.raises(RuntimeError, match="full"):
        follow(SimpleNamespace(awaitTermination=fails, recentProgress=[step(0, 1000, results=7)]), file=out)
    assert batches_in(out) == [["0", "1,000", "7"]]


def test_idle_reports_have_the_number_of_the_next_micro_batch() -> None:
    query = Query(
        step(0, 0, second=0),
        step(0, 10, second=1, results=7),
        step(1, 0, second=2),
        step(1, 0, second=12),
        step(1, 20, second=13, results=8),
    )
    out = io.StringIO()
    follow(query, file=out)
    assert batches_in(out) == [["0", "10", "7"], ["1", "20", "8"]]


def test_micro_batches_until_the_query_has_stopped() -> None:
    """One more micro-batch was completed between the decisive report and the stop."""

    class Late(Endless):
        def stop(self) -> None:
            super().stop()
            self._seen += 1

    query, out = Late(arriving(0), arriving(1)), io.StringIO()
    finish(query, file=out, until=3)
    assert query.stopped_after == 1
    assert batches_in(out) == [["0", "5", "3"], ["1", "5", "3"]]


class Endless(Query):
    """A query that runs until it is stopped."""

    stopped_after: int | None = None

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802  as Spark calls it
        super().awaitTermination(timeout)
        return False

    def stop(self) -> None:
        self.stopped_after = self._seen


def silent(*seconds: float) -> list[dict[str, Any]]:
    """Micro-batches in which no cell did any work."""
    return [step(100 + number, 0, second=second, results=None) for number, second in enumerate(seconds)]


ROWS = step(0, 5, results=3)
WAITING = [step(number, 0, second=number, results=0) for number in range(1, 5)]
NOTHING_YET = [step(number, 0, stored=0, second=3 * number) for number in range(3)]
LATER = step(3, 5, second=9, results=1)


@pytest.mark.parametrize(
    ("steps", "after"),
    [
        pytest.param([ROWS, step(1, 0, second=0.5, results=4), *silent(1, 2, 3)], 4, id="silence"),
        pytest.param([ROWS, *WAITING, *silent(9)], 6, id="a stall first"),
        pytest.param([*NOTHING_YET, LATER, *silent(11)], 5, id="nothing comes at first"),
        pytest.param(silent(1, 1.5, 2.1), 3, id="started again when all was done"),
    ],
)
def test_a_join_is_finished_when_nobody_waits(steps: list[dict[str, Any]], after: int) -> None:
    query = Endless(*steps)
    finish(query, file=io.StringIO())
    assert query.stopped_after == after


def arriving(batch: int, **figures: Any) -> dict[str, Any]:
    """A micro-batch whose inputs have not ended."""
    return step(batch, 5, second=batch, results=3, **figures)


def expecting(batch: int, low: int, high: int) -> dict[str, Any]:
    return arriving(batch, emitted=3 * batch, estimate=100, estimate_low=low, estimate_high=high)


@pytest.mark.parametrize(
    ("until", "steps", "after"),
    [
        pytest.param(None, [arriving(0, limit_reached=0), arriving(1, limit_reached=1)], 2, id="limit"),
        pytest.param(7, [arriving(number, emitted=3 * number) for number in range(5)], 3, id="results"),
        pytest.param(3, [arriving(0, emitted=0)], 1, id="results of one micro-batch"),
        pytest.param(0.1, [arriving(0), expecting(1, 80, 120), expecting(2, 91, 109)], 3, id="error"),
        pytest.param([0.1, 6], [expecting(0, 80, 120), expecting(1, 80, 120)], 2, id="whatever comes first"),
        pytest.param("1 microsecond", [], 1, id="time, without any micro-batch"),
    ],
)
def test_until_there_is_enough(until: Any, steps: list[dict[str, Any]], after: int) -> None:
    query = Endless(*steps)
    finish(query, until=until)
    assert query.stopped_after == after


def test_until_has_to_make_sense() -> None:
    with pytest.raises(InputError, match="until= takes"):
        finish(Endless(), until=1.5)


def test_a_connect_session_tells_it_in_other_words() -> None:
    """Names and values are separate, and rows are those of sources. Nulls are no figures: the join has ended."""

    def told(batch: int, second: float, rows: int, results: int | None) -> dict[str, Any]:
        figures = Figures(values=[results], schema={"type": "struct", "fields": [{"name": "results"}]})
        sources = {"numInputRows": None, "sources": [{"numInputRows": rows}, {"numInputRows": 1 if rows else 0}]}
        return step(batch, 0, second=second) | sources | {"observedMetrics": {"dovetail": figures}}

    query = Endless(told(0, 0, 10, 7), told(1, 1, 0, None), told(2, 3, 0, None))
    out = io.StringIO()
    finish(query, file=out)
    _, *lines = out.getvalue().splitlines()
    assert [line.split()[:4] for line in lines] == [["0", "11", "22", "7"]]
    assert query.stopped_after == 3


def progress(rows: tuple[int, int], run: str = "r1", took: float = 0.0, **joins: Figures) -> dict[str, Any]:
    """A progress report as sent by Spark."""
    sources = [
        {"description": f"FileStreamSource[file:/data/{name}]", "numInputRows": count}
        for name, count in zip(("orders", "payments"), rows, strict=True)
    ]
    return {
        "id": "q1",
        "runId": run,
        "name": "shop",
        "numInputRows": sum(rows),
        "sources": sources,
        "durationMs": {"triggerExecution": took},
        "observedMetrics": dict(joins),
    }


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Listening:
    """A listener without a session."""
    return listening_to(set, monkeypatch, tmp_path)


def listening_to(active: Callable[[], set[str]], monkeypatch: pytest.MonkeyPatch, place: Path) -> Listening:
    spark = SimpleNamespace(
        add_listener=lambda spark, audience: None,
        remove_listener=lambda spark, listener: None,
        active_runs=lambda spark: active(),
    )
    monkeypatch.setitem(sys.modules, "dovetail.spark.streaming.listening", spark)  # type: ignore[arg-type]
    return Listening(None, place / "runs")


def figures(results: int, **others: int | None) -> Figures:
    return Figures(
        **{"results": results, "resident_rows": 10, "spilled_rows": 20, "reactive": 0, "finished": 0} | others
    )


def test_micro_batches_add_up(heard: Listening, tmp_path: Path) -> None:
    heard.progressed(progress((5, 7), dovetail=figures(3)))
    heard.progressed(progress((0, 2), dovetail=figures(4, resident_rows=11, reactive=1)))
    heard.progressed(progress((0, 0), dovetail=figures(6, reactive=6)))
    heard.progressed(progress((0, 0), dovetail=figures(0)))  # cells that only report their existence
    assert heard.recordings[0].latest.phase == "waiting"
    heard.progressed(progress((0, 0), dovetail=Figures(results=None, resident_rows=None)))
    (recording,) = heard.recordings
    assert recording.outcome == RUNNING
    assert recording.latest.phase == "waiting"
    assert (recording.latest.resident_rows, recording.latest.spilled_rows) == (10, 20)
    assert [(s.name, s.rows, s.state) for s in recording.latest.sources] == [
        *(("orders", 5, "stalled"), ("payments", 9, "stalled"))
    ]
    heard.progressed(progress((0, 0), dovetail=figures(1, finished=2)))
    assert recording.latest.phase == "cleanup"
    assert recording.latest.estimate is None
    bounds = {"estimate": 20, "estimate_low": 18, "estimate_high": 23}
    heard.progressed(progress((0, 0), dovetail=figures(0, **bounds)))
    assert recording.latest.estimate == (20, 18, 23, 0.95)
    assert recording.latest.found == {"arriving": 6, "reactive": 7, "waiting": 0, "cleanup": 1}
    heard.ended("another", None)
    assert recording.outcome == RUNNING
    heard.ended("r1", None)
    assert recording.outcome == DONE
    assert {source.state for source in recording.latest.sources} == {"ended"}
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["shop-dovetail-r1.jsonl"]
    heard.close()


def test_what_a_window_holds(heard: Listening, tmp_path: Path) -> None:
    held = {"resident_rows": 30, "spilled_rows": 20, "state_bytes": 64_000_000}
    heard.progressed(progress((5, 7), dovetail=Figures(results=3, **held, late_rows=2)))
    heard.progressed(progress((5, 7), dovetail=Figures(results=3, **held, late_rows=5)))
    heard.ended("r1", None)
    (file,) = (tmp_path / "runs").iterdir()
    recording = Recording.read(file)
    last = recording.latest
    assert (last.resident_rows, last.spilled_rows, last.state_bytes) == (30, 20, 64_000_000)
    assert last.figures == {"state_bytes": 64_000_000, "late_rows": 7}  # rows held now, rows dropped so far
    assert "64 MB state  7 late rows" in line(recording)
    assert "64 MB at most" in report(recording, tmp_path / "run.html").read_text()
    heard.close()


def test_a_micro_batch_is_of_the_time_before_it(heard: Listening) -> None:
    """Between two micro-batches the recording is saved many times, without new reports."""
    heard.progressed(progress((5, 7), took=400.0, dovetail=figures(3)))
    (recording,) = heard.recordings
    recording.note()
    recording.note()
    heard.progressed(progress((0, 0), took=300.0, dovetail=figures(6)))
    recording.note()
    assert recording.heading is not None
    assert recording.heading.on == "query shop"
    snapshot = recording.snapshot()
    assert [band.state for band in figures_of.phase_bands(snapshot.moments)] == ["arriving", "reactive"]
    assert [noted.moment.results for noted in snapshot.moments][-2:] == [3, 9]
    assert snapshot.seconds >= 0.4  # it began before its first report
    assert recording.latest.seconds["arriving"] >= 0.4
    heard.close()


def test_other_queries_are_left_alone_and_joins_told_apart(heard: Listening) -> None:
    heard.progressed(progress((5, 7), theirs=Figures(results=1)))
    heard.progressed(progress((5, 7), "r2"))
    assert heard.recordings == []
    heard.progressed(
        progress((5, 7), "r3", a=figures(1), b=Figures(results=2, resident_rows=3), theirs=Figures(rows=1))
    )
    heard.progressed(progress((5, 7), "r4", a=figures(100)))
    assert [(r.latest.results, r.latest.resident_rows) for r in heard.recordings] == [(1, 10), (2, 3), (100, 10)]
    heard.ended("r3", "boom\n  at some.Class\nCaused by: a full disk")
    assert [r.outcome for r in heard.recordings] == [FAILED, FAILED, RUNNING]
    assert heard.recordings[0].error == "boom … Caused by: a full disk"
    heard.close()
    assert heard.recordings[2].outcome == DONE


def test_it_waits_for_what_spark_has_still_to_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The query has ended, but its last micro-batch is reported later, from another thread."""
    reports: list[threading.Thread] = []

    def last_words() -> None:
        heard.progressed(progress((1, 1), "r1", dovetail=figures(500)))
        heard.ended("r1", None)

    def active() -> set[str]:  # checked at the start and when it is closed
        if not heard_of:
            return {"r1", "r2"}
        reports.append(threading.Thread(target=last_words))
        reports[0].start()
        return {"r2"}

    heard_of: list[str] = []
    heard = listening_to(active, monkeypatch, tmp_path)
    heard_of.append("r1")
    for run in ("r1", "r2"):
        heard.progressed(progress((5, 7), run, dovetail=figures(3)))
    heard.close()
    reports[0].join()
    assert [(recording.latest.results, recording.outcome) for recording in heard.recordings] == [(503, DONE), (3, DONE)]


def test_it_does_not_wait_for_ever(
    heard: Listening, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spark_streams, "END_S", 0.0)
    heard.started("r1")
    heard.progressed(progress((5, 7), dovetail=figures(3)))
    heard.close()
    assert heard.recordings[0].outcome == DONE
    assert "has not reported the end of run r1" in caplog.text


def test_names_of_sources_and_errors() -> None:
    names = ["FileStreamSource[file:/data/orders/]", "KafkaV2[Subscribe[orders]]", "MemoryStream[a#1]", "plain", ""]
    assert [source_name(name) for name in names] == ["orders", "orders", "a#1", "plain", ""]
    assert in_short("") == ""
    assert in_short("one line") == "one line"
    assert in_short('py4j: Traceback:\n  File "x", line 3\nValueError: full\n\tat java.lang.X\n... 12 more') == (
        "py4j: Traceback: … ValueError: full"
    )
