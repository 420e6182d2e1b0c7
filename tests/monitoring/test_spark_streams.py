from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.monitoring import summary as figures_of
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.report import report
from dovetail.monitoring.snapshot import DONE, FAILED, RUNNING
from dovetail.monitoring.spark_streams import Listening, in_short, source_name
from dovetail.monitoring.terminal import line


class Figures(SimpleNamespace):
    def asDict(self) -> dict[str, Any]:  # noqa: N802  as Spark calls it
        return vars(self)


def progress(rows: tuple[int, int], run: str = "r1", took: float = 0.0, **joins: Figures) -> dict[str, Any]:
    """As Spark reports a micro-batch."""
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
    """As if there were a session."""
    spark = SimpleNamespace(add_listener=lambda spark, audience: None, remove_listener=lambda spark, listener: None)
    monkeypatch.setitem(sys.modules, "dovetail.spark.streaming.listening", spark)  # type: ignore[arg-type]
    return Listening(None, tmp_path / "runs")


def figures(results: int, **others: int | None) -> Figures:
    return Figures(
        **{"results": results, "resident_rows": 10, "spilled_rows": 20, "reactive": 0, "finished": 0} | others
    )


def test_micro_batches_add_up(heard: Listening, tmp_path: Path) -> None:
    heard.progressed(progress((5, 7), dovetail=figures(3)))
    heard.progressed(progress((0, 2), dovetail=figures(4, resident_rows=11, reactive=1)))
    heard.progressed(progress((0, 0), dovetail=figures(6, reactive=6)))
    heard.progressed(progress((0, 0), dovetail=figures(0)))  # cells that only say that they are there
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
    held = {"window_rows": 50, "spilled_rows": 20, "state_bytes": 64_000_000}
    heard.progressed(progress((5, 7), dovetail=Figures(matches=3, **held)))
    heard.ended("r1", None)
    (file,) = (tmp_path / "runs").iterdir()
    recording = Recording.read(file)
    last = recording.latest
    assert (last.resident_rows, last.spilled_rows, last.state_bytes) == (30, 20, 64_000_000)
    assert "64 MB of state" in line(recording)
    assert "64 MB at most" in report(recording, tmp_path / "run.html").read_text()
    heard.close()


def test_a_micro_batch_is_of_the_time_before_it(heard: Listening) -> None:
    """Between two of them the recording is noted many times, though nothing is told."""
    heard.progressed(progress((5, 7), took=400.0, dovetail=figures(3)))
    (recording,) = heard.recordings
    recording.note()
    recording.note()
    heard.progressed(progress((0, 0), took=300.0, dovetail=figures(6)))
    recording.note()
    assert recording.heading is not None
    assert recording.heading.on == "query shop"
    glance = recording.glance()
    assert [band.state for band in figures_of.phase_bands(glance.moments)] == ["arriving", "reactive"]
    assert [noted.moment.results for noted in glance.moments][-2:] == [3, 9]
    assert glance.seconds >= 0.4  # it began before it was heard of
    assert recording.latest.seconds["arriving"] >= 0.4
    heard.close()


def test_other_queries_are_left_alone_and_joins_told_apart(heard: Listening) -> None:
    heard.progressed(progress((5, 7), theirs=Figures(results=1)))
    heard.progressed(progress((5, 7), "r2"))
    assert heard.recordings == []
    heard.progressed(progress((5, 7), "r3", a=figures(1), b=Figures(matches=2, window_rows=3), theirs=Figures(rows=1)))
    heard.progressed(progress((5, 7), "r4", a=figures(100)))
    assert [(r.latest.results, r.latest.resident_rows) for r in heard.recordings] == [(1, 10), (2, 3), (100, 10)]
    heard.ended("r3", "boom\n  at some.Class\nCaused by: a full disk")
    assert [r.outcome for r in heard.recordings] == [FAILED, FAILED, RUNNING]
    assert heard.recordings[0].error == "boom … Caused by: a full disk"
    heard.close()
    assert heard.recordings[2].outcome == DONE


def test_names_of_sources_and_errors() -> None:
    names = ["FileStreamSource[file:/data/orders/]", "KafkaV2[Subscribe[orders]]", "MemoryStream[a#1]", "plain", ""]
    assert [source_name(name) for name in names] == ["orders", "orders", "a#1", "plain", ""]
    assert in_short("") == ""
    assert in_short("one line") == "one line"
    assert in_short('py4j: Traceback:\n  File "x", line 3\nValueError: full\n\tat java.lang.X\n... 12 more') == (
        "py4j: Traceback: … ValueError: full"
    )
