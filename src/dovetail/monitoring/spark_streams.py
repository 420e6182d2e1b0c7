"""Monitors joins of Spark streams, using the progress that Spark reports after each micro-batch.

`follow` and `finish` print a line for each micro-batch, until the query ends:

    batch    rows in    rows/s    results          estimate  kept rows    state  skew  late   probe  merge    took
       12    100,000    92,593  1,012,310  8,120,400 ±9,700  1,000,000  64.0 MB  1.02     0  420 ms  31 ms  1.08 s

They only read the query's progress. They work on any query with a join of ours, in this session or a Connect session.
`listen` makes recordings from it:

    StreamingQueryListener --progress--> Listening --Moment--> a Recording for each join

A micro-batch with input is the phase `arriving`, one without is `reactive`, or `cleanup` once cells have finished. The
time between them is `waiting`. In a micro-batch with input, results of background work also count as `reactive`. Held
rows are those of the cells that were active in the micro-batch.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from dovetail.core.addresses import local_path
from dovetail.core.figures import SHOWN
from dovetail.core.metrics import HEARTBEAT_S, Estimate, Moment, SourceState
from dovetail.estimation.estimate import CONFIDENCE
from dovetail.monitoring.formatting import format_bytes
from dovetail.monitoring.recording import SUFFIX, Recording
from dovetail.monitoring.snapshot import DONE, FAILED, Heading
from dovetail.visible import visible

if TYPE_CHECKING:
    from dovetail.execution.stop_rule import Until

Cell = Callable[[Mapping[str, Any]], str]

log = logging.getLogger("dovetail.spark")

POLL_S = 0.2
END_S = 60.0  # maximum delay of Spark's report that a query has ended
METRICS = "dovetail"  # the default name of a join
OURS = {"results", "resident_rows"}  # figures that identify our joins


def follow(query: Any, metrics: str = "dovetail", file: TextIO | None = None) -> None:
    """Print a line for each micro-batch of a streaming query until it ends. Blocks like `query.awaitTermination()`.

    Micro-batches without input or results are skipped. An error of the query is raised here. Ctrl-C stops following,
    not the query.

        query = dovetail.join(orders, payments, "l.id = r.order_id").writeStream.start("/shared/joined")
        dovetail.follow(query)

    Args:
        query: A StreamingQuery with a Dovetail join.
        metrics: The join's `metrics=`, if it was set.
        file: The output; standard error by default.
    """
    out = sys.stderr if file is None else file
    for line in lines(query, metrics):
        print(visible(line), file=out, flush=True)


def finish(query: Any, metrics: str = "dovetail", file: TextIO | None = None, *, until: Any = None) -> None:
    """Wait until a join of bounded streams has emitted all its results, and stop the query.

    A query with timers does not end by itself. A stalled source has not ended: unfinished cells report every second. A
    join with a `limit` is complete when the limit is reached, even if its inputs have not ended.

        joined = dovetail.join(orders, parcels, "l.id = r.order_id", memory="256MB", end="kind = 'end'")
        dovetail.finish(joined.writeStream.start("/shared/parcels"))

    Args:
        query: A StreamingQuery with a Dovetail join.
        metrics: The join's `metrics=`, if it was set.
        file: Where to print progress, as `follow` does; by default it is not printed.
        until: Stop the query earlier, as in `dovetail.progressive`: after a number of results (10_000), when the
            estimate of the total is within a relative error (0.01), after a time ("30 seconds"), or at the first of a
            list of these. A restarted query continues from there.
    """
    from dovetail.execution.stop_rule import Until

    for line in lines(query, metrics, Completion(Until.read(until).start_clock())):
        if file is not None:
            print(visible(line), file=file, flush=True)


def lines(query: Any, metrics: str = "dovetail", completion: Completion | None = None) -> Iterator[str]:
    """The lines that `follow` prints. With a completion, the query is stopped when it is reached."""
    yield "".join(name.rjust(width) for name, width, _ in COLUMNS)
    told, ended = MicroBatches(query), False
    while not ended:
        try:
            ended = query.awaitTermination(POLL_S)
        except Exception:  # the error of the query
            yield from _lines(told, metrics)
            raise
        ended = ended or (completion is not None and completion.is_late)
        for progress in told.news():
            known = known_figures(progress, metrics)
            ended = ended or (completion is not None and completion.is_reached(progress, known))
            yield from _line(progress, known)
    if completion is not None:
        query.stop()
        yield from _lines(told, metrics)


def _lines(told: MicroBatches, metrics: str) -> Iterator[str]:
    for progress in told.news():
        yield from _line(progress, known_figures(progress, metrics))


def _line(progress: Any, known: dict[str, Any]) -> Iterator[str]:
    if figures := _figures(progress, known):
        yield "".join(cell(figures).rjust(width) for _, width, cell in COLUMNS)


class MicroBatches:
    """The reports of Spark on a query, each report once.

    Spark also reports while no rows come, with the number of the next micro-batch.
    """

    def __init__(self, query: Any) -> None:
        self._query = query
        self._last: tuple[int, str] | None = None

    def news(self) -> list[Any]:
        """Reports since the last call. Spark keeps one hundred."""
        recent = list(self._query.recentProgress)
        names = [(progress["batchId"], progress["timestamp"]) for progress in recent]
        new = recent[names.index(self._last) + 1 :] if self._last in names else recent
        self._last = names[-1] if names else self._last
        return new


class Completion:
    """Whether a join of bounded streams is complete, or has emitted enough."""

    def __init__(self, until: Until) -> None:
        self._until = until
        self._heard: datetime | None = None  # the last micro-batch with activity

    @property
    def is_late(self) -> bool:
        """Whether the time is over, with or without a micro-batch."""
        return self._until.is_over

    def is_reached(self, progress: Any, known: Mapping[str, Any]) -> bool:
        """Record a micro-batch, in order of numbers."""
        enough = self._until.is_enough(known.get("emitted", 0) + known.get("results", 0), [estimate_of(known)])
        return enough or bool(known.get("limit_reached")) or self._is_silent(progress, known)

    def _is_silent(self, progress: Any, known: Mapping[str, Any]) -> bool:
        """Whether the inputs are idle, and no cell reports that it waits."""
        at = datetime.fromisoformat(progress["timestamp"])
        cells = sum(operator["numRowsTotal"] for operator in progress["stateOperators"])
        if known or rows_in(progress) or not cells or self._heard is None:
            self._heard = at
            return False
        return at - self._heard > timedelta(seconds=HEARTBEAT_S)


def known_figures(progress: Any, metrics: str) -> dict[str, Any]:
    """The figures that cells reported for a micro-batch. Empty if no cell was active."""
    ours = (progress["observedMetrics"] or {}).get(metrics)
    figures = {} if ours is None else ours.asDict()
    if figures.keys() == {"values", "schema"}:  # a Connect session returns the parts of Spark's row
        names = [field["name"] for field in figures["schema"]["fields"]]
        figures = dict(zip(names, figures["values"], strict=True))
    return {name: value for name, value in figures.items() if value is not None}


def estimate_of(known: Mapping[str, Any]) -> Estimate | None:
    """The estimate of the total number of results, if the cells have one."""
    if "estimate" not in known:
        return None
    return Estimate(known["estimate"], known["estimate_low"], known["estimate_high"], CONFIDENCE)


def rows_in(progress: Any) -> int:
    """The number of input rows of a micro-batch. In a Connect session only the sources know it."""
    rows = progress["numInputRows"]
    return sum(source["numInputRows"] for source in progress["sources"]) if rows is None else int(rows)


def _figures(progress: Any, known: dict[str, Any]) -> dict[str, Any]:
    """The figures of a micro-batch by column name. Empty if there were no input and no results."""
    rows = rows_in(progress)
    if not rows and not known.get("results"):
        return {}
    took = progress["durationMs"].get("triggerExecution", 0) / 1000
    return known | {"batch": progress["batchId"], "rows": rows, "took": took}


def _count(name: str) -> Cell:
    return lambda figures: f"{figures[name]:,}" if name in figures else "-"


def _time(name: str) -> Cell:
    return lambda figures: f"{figures[name] / 1000:,.0f} ms" if name in figures else "-"


def _kept_rows(figures: Mapping[str, Any]) -> int | None:
    """Rows in memory and on disk."""
    kept = [figures[name] for name in ("resident_rows", "spilled_rows") if name in figures]
    return sum(kept) if kept else None


def _format_kept(figures: Mapping[str, Any]) -> str:
    kept = _kept_rows(figures)
    return "-" if kept is None else f"{kept:,}"


def _format_state(figures: Mapping[str, Any]) -> str:
    """Bytes of the segments."""
    return format_bytes(figures["state_bytes"]) if "state_bytes" in figures else "-"


def _format_skew(figures: Mapping[str, Any]) -> str:
    """The rows of the largest cell relative to the average: 1 if all cells have the same number."""
    kept = _kept_rows(figures)
    if not kept or "largest_cell_rows" not in figures:
        return "-"
    return f"{figures['largest_cell_rows'] * figures['cells'] / kept:.2f}"


def _format_estimate(figures: Mapping[str, Any]) -> str:
    estimate = estimate_of(figures)
    return "-" if estimate is None else f"{estimate.total:,.0f} ±{max(0.0, estimate.high - estimate.total):,.0f}"


def _rate(figures: Mapping[str, Any]) -> str:
    return f"{figures['rows'] / figures['took']:,.0f}" if figures["took"] else "-"


COLUMNS: tuple[tuple[str, int, Cell], ...] = (
    ("batch", 6, _count("batch")),
    ("rows in", 11, _count("rows")),
    ("rows/s", 10, _rate),
    ("results", 12, _count("results")),
    ("estimate", 19, _format_estimate),
    ("kept rows", 12, _format_kept),
    ("state", 9, _format_state),
    ("skew", 6, _format_skew),
    ("late", 7, _count("late_rows")),
    ("probe", 9, _time("probe_us")),
    ("merge", 9, _time("merge_us")),
    ("took", 9, lambda figures: f"{figures['took']:.2f} s"),
)


def listen(spark: Any, record: str | os.PathLike[str] | None = None) -> Listening:
    """Record all streaming joins of a session, including running ones, until it is closed.

        with dovetail.listen(spark, record="runs/") as listening:
            dovetail.finish(query)
        dovetail.report(listening.recordings[0], "run.html")

    Args:
        spark: The session.
        record: A directory for the recordings, with a file for each run. `dovetail watch` can show them while they run.

    Returns:
        An object with `recordings`, to which new ones are added until `close()`.
    """
    return Listening(spark, None if record is None else local_path(record, "record= is a directory of this machine"))


class Listening:
    """The recordings of a session's joins, in `recordings`. New ones are added as queries start."""

    def __init__(self, spark: Any, directory: Path | None = None) -> None:
        from dovetail.spark.streaming.listening import active_runs, add_listener

        self.recordings: list[Recording] = []
        self._spark = spark
        self._directory = directory
        self._joins: dict[tuple[str, str], Join] = {}
        self._runs: set[str] = set()  # runs whose end Spark will report
        self._over: set[str] = set()  # runs whose end it has reported
        self._reported = threading.Condition()
        self._listener = add_listener(spark, self)
        for run in active_runs(spark):
            self.started(run)

    def close(self) -> None:
        """Stop listening, once Spark has reported all ended queries. Recordings of running queries end here."""
        from dovetail.spark.streaming.listening import active_runs, remove_listener

        try:
            self._wait_for_ends(active_runs(self._spark))
            remove_listener(self._spark, self._listener)
        finally:
            for join in list(self._joins.values()):
                join.end(None)
            self._joins.clear()

    def _wait_for_ends(self, active: set[str]) -> None:
        """Listeners are notified after the caller: the last micro-batches arrive first, then the end."""
        with self._reported:
            ended = self._runs - active
            if not self._reported.wait_for(lambda: ended <= self._over, END_S):
                log.warning(
                    "Spark has not reported the end of %s within %.0f seconds: recordings may lack their last "
                    "micro-batches.",
                    ", ".join(f"run {run}" for run in sorted(ended - self._over)),
                    END_S,
                )

    def started(self, run: str) -> None:
        with self._reported:
            self._runs.add(run)

    def progressed(self, progress: Any) -> None:
        run = str(progress["runId"])
        for name in self._names(progress):
            join = self._joins.get((run, name)) or self._start_join(run, name, progress)
            join.progressed(progress, known_figures(progress, name))

    def ended(self, run: str, error: str | None) -> None:
        for key in [key for key in self._joins if key[0] == run]:
            self._joins.pop(key).end(error)
        with self._reported:
            self._over.add(run)
            self._reported.notify_all()

    def _names(self, progress: Any) -> list[str]:
        """The joins of a query: those with figures now, and those with figures before."""
        observed = progress["observedMetrics"] or {}
        now = [name for name, row in observed.items() if set(row.asDict()) >= OURS]
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
    """One join in one run of a query: sums over its micro-batches."""

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
        self._figures: dict[str, int] = {}
        self._estimate: Estimate | None = None
        self._ended = False

    def progressed(self, progress: Any, figures: Mapping[str, Any]) -> None:
        results = int(figures.get("results", 0))
        phase = self._phase(progress, figures, results)
        reactive = int(figures.get("reactive", 0)) if phase == "arriving" else 0
        self._add_results(phase, results - reactive)
        if reactive:
            self._add_results("reactive", reactive)
        self._account(phase, seconds_of(progress))
        if figures:
            self._held = figures.get("resident_rows"), figures.get("spilled_rows")
            self._estimate = estimate_of(figures)
            self._add_figures(figures)
        for number, source in enumerate(progress["sources"][: len(self._sources)]):
            known, rows = self._sources[number], source["numInputRows"]
            self._sources[number] = SourceState(known.name, known.rows + rows, "arriving" if rows else "stalled")
        self._tell(phase)

    def _add_results(self, phase: str, results: int) -> None:
        self._found[phase] = self._found.get(phase, 0) + results

    def _add_figures(self, figures: Mapping[str, Any]) -> None:
        for figure in SHOWN:
            if figure.name in figures:
                before = self._figures.get(figure.name, 0) if figure.over_time == "sum" else 0
                self._figures[figure.name] = before + int(figures[figure.name])

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
        return "reactive" if results else "waiting"  # cells that only report that they are alive

    def _account(self, phase: str, took: float) -> None:
        """Account for the time since the last micro-batch: the duration of this one, and waiting before it."""
        now = self._clock()
        gone, self._since = now - self._since, now
        for spent_on, seconds in ((phase, min(took, gone)), ("waiting", max(0.0, gone - took))):
            self._seconds[spent_on] = self._seconds.get(spent_on, 0.0) + seconds

    def _tell(self, phase: str) -> None:
        found, seconds = dict(self._found), dict(self._seconds)
        known: dict[str, Any] = {"estimate": self._estimate, "figures": dict(self._figures)}
        self._recording.tell(Moment(phase, found, seconds, *self._held, tuple(self._sources), **known))


def seconds_of(progress: Any) -> float:
    """The duration of a micro-batch."""
    took: float = progress["durationMs"].get("triggerExecution", 0) / 1000
    return took


def in_short(error: str) -> str:
    """A shortened stack trace: the first line and the last cause."""
    lines = [line.strip() for line in error.splitlines()]
    lines = [line for line in lines if line and not re.match(r"at |\.\.\. |File \"", line)]
    return " … ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))


def source_name(description: str) -> str:
    """A source's short name: `FileStreamSource[file:/data/orders]` is orders."""
    inside = description.rsplit("[", 1)[-1].rstrip("]").rstrip("/")
    return inside.rsplit("/", 1)[-1] or description
