"""Joins of Spark streams as recordings, from the progress that Spark itself reports after each micro-batch.

    StreamingQueryListener --progress--> Listening --Moment--> a Recording for each join

A micro-batch with input is the phase `arriving`, one without is `reactive`, or `cleanup` once cells have finished; the
time between them is spent waiting. Results that background work found in a micro-batch with input are `reactive`, too.
Rows held are those of the cells that had something to do in the micro-batch.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dovetail.core.metrics import Estimate, Moment, SourceState
from dovetail.monitoring.follow_query import estimate_of, known_figures, results_in
from dovetail.monitoring.recording import SUFFIX, Recording
from dovetail.monitoring.snapshot import DONE, FAILED, Heading

METRICS = "dovetail"  # the name of a join that was given none
OURS = ({"results", "resident_rows"}, {"matches", "window_rows"})
"""Names among the figures of a join without a window, and of one with."""


def listen(spark: Any, record: str | os.PathLike[str] | None = None) -> Listening:
    """Record all streaming joins of a session, those that run already included, until it is closed.

    `record` is a directory for the recordings, a file for each run, which `dovetail watch` can show meanwhile.
    """
    return Listening(spark, None if record is None else Path(record))


class Listening:
    """The recordings of a session's joins, as they come: in `recordings`."""

    def __init__(self, spark: Any, directory: Path | None = None) -> None:
        from dovetail.spark.streaming.listening import add_listener

        self.recordings: list[Recording] = []
        self._spark = spark
        self._directory = directory
        self._joins: dict[tuple[str, str], Join] = {}
        self._listener = add_listener(spark, self)

    def close(self) -> None:
        """Stop listening. Recordings of running queries end here."""
        from dovetail.spark.streaming.listening import remove_listener

        remove_listener(self._spark, self._listener)
        for join in self._joins.values():
            join.end(None)
        self._joins.clear()

    def progressed(self, progress: Any) -> None:
        run = str(progress["runId"])
        for name in self._names(progress):
            join = self._joins.get((run, name)) or self._start_join(run, name, progress)
            join.progressed(progress, known_figures(progress, name))

    def ended(self, run: str, error: str | None) -> None:
        for key in [key for key in self._joins if key[0] == run]:
            self._joins.pop(key).end(error)

    def _names(self, progress: Any) -> list[str]:
        """The joins of a query: those it has figures of now, and those it had before."""
        observed = progress["observedMetrics"] or {}
        now = [name for name, row in observed.items() if any(ours <= set(row.asDict()) for ours in OURS)]
        before = [name for run, name in self._joins if run == str(progress["runId"])]
        return list(dict.fromkeys([*before, *now]))

    def _start_join(self, run: str, name: str, progress: Any) -> Join:
        query = progress["name"] or str(progress["id"])[:8]
        path = None
        if self._directory is not None:
            path = self._directory / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', f'{query}-{name}')}-{run[:8]}{SUFFIX}"
        recording = Recording(path)
        self.recordings.append(recording)
        names = tuple(source_name(source["description"]) for source in progress["sources"])
        said = f"query {query}" + (f", join {name}" if name != METRICS else "")
        took = seconds_of(progress)
        recording.start(Heading(said, names, where="of streams on Spark", batched=True), took)
        self._joins[run, name] = Join(recording, names, took)
        return self._joins[run, name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Join:
    """One join of one run of a query: sums of what its micro-batches tell."""

    def __init__(
        self, recording: Recording, names: tuple[str, ...], ago_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._recording = recording
        self._clock = clock
        self._sources = [SourceState(name) for name in names]
        self._found: dict[str, int] = {}
        self._seconds: dict[str, float] = {}
        self._since = clock() - ago_s
        self._held: tuple[int | None, int | None] = (None, None)
        self._state_bytes: int | None = None
        self._estimate: Estimate | None = None
        self._ended = False

    def progressed(self, progress: Any, figures: Mapping[str, Any]) -> None:
        results = results_in(figures)
        phase = self._phase(progress, figures, results)
        reactive = int(figures.get("reactive", 0)) if phase == "arriving" else 0
        self._add_results(phase, results - reactive)
        if reactive:
            self._add_results("reactive", reactive)
        self._account(phase, seconds_of(progress))
        if figures:
            self._held = resident_rows(figures), figures.get("spilled_rows")
            self._estimate, self._state_bytes = estimate_of(figures), figures.get("state_bytes")
        for number, source in enumerate(progress["sources"][: len(self._sources)]):
            known, rows = self._sources[number], source["numInputRows"]
            self._sources[number] = SourceState(known.name, known.rows + rows, "arriving" if rows else "stalled")
        self._tell(phase)

    def _add_results(self, phase: str, results: int) -> None:
        self._found[phase] = self._found.get(phase, 0) + results

    def end(self, error: str | None) -> None:
        if not self._ended:
            self._ended = True
            self._sources = [SourceState(source.name, source.rows, "ended") for source in self._sources]
            self._tell(self._recording.latest.phase)
            self._recording.finish(FAILED if error else DONE, in_short(error or ""))

    def _phase(self, progress: Any, figures: Mapping[str, Any], results: int) -> str:
        if progress["numInputRows"]:
            return "arriving"
        if figures.get("finished"):
            return "cleanup"
        return "reactive" if results else "waiting"  # cells that only say that they are there

    def _account(self, phase: str, took: float) -> None:
        """The time since the last micro-batch: what this one took, and before that the query waited."""
        now = self._clock()
        gone, self._since = now - self._since, now
        for spent_on, seconds in ((phase, min(took, gone)), ("waiting", max(0.0, gone - took))):
            self._seconds[spent_on] = self._seconds.get(spent_on, 0.0) + seconds

    def _tell(self, phase: str) -> None:
        found, seconds = dict(self._found), dict(self._seconds)
        known: dict[str, Any] = {"estimate": self._estimate, "state_bytes": self._state_bytes}
        self._recording.tell(Moment(phase, found, seconds, *self._held, tuple(self._sources), **known))


def resident_rows(figures: Mapping[str, Any]) -> int | None:
    """Rows in memory; of a window, those that are not spilled."""
    if "window_rows" in figures:
        return int(figures["window_rows"]) - int(figures.get("spilled_rows", 0))
    return figures.get("resident_rows")


def seconds_of(progress: Any) -> float:
    """What a micro-batch took."""
    took: float = progress["durationMs"].get("triggerExecution", 0) / 1000
    return took


def in_short(error: str) -> str:
    """A stack trace without the stack: how it begins, and the last word on why."""
    lines = [line.strip() for line in error.splitlines()]
    lines = [line for line in lines if line and not re.match(r"at |\.\.\. |File \"", line)]
    return " … ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))


def source_name(description: str) -> str:
    """What is read, without how: `FileStreamSource[file:/data/orders]` is orders."""
    inside = description.rsplit("[", 1)[-1].rstrip("]").rstrip("/")
    return inside.rsplit("/", 1)[-1] or description
