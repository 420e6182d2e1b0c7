"""An immutable snapshot of a run: all data that a view of it needs, as numbers and words.

The panel, the page and the report all use it, so they agree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Protocol

from dovetail.core.figures import SHOWN, Figure
from dovetail.core.metrics import Moment, SourceState
from dovetail.monitoring.formatting import format_bytes, format_seconds, format_share, short

RUNNING, DONE, STOPPED, FAILED = "running", "done", "stopped", "failed"
MOST_MOMENTS = 1500  # more would not be visible
PHASES = {
    "preparing": "not yet begun",
    "arriving": "rows arrive and are joined at once",
    "reactive": "the inputs are idle; spilled rows are joined",
    "waiting": "the inputs are idle, and there is no pending work",
    "cleanup": "all inputs have ended; the remaining results are emitted",
}
OUTCOMES = {DONE: "done", STOPPED: "stopped before the end", FAILED: "failed"}
RECENT_S = 2.0  # window over which the rate is measured
SILENT_S = 10.0  # without a line: the process may be gone


@dataclass(frozen=True, slots=True)
class Heading:
    """What is joined, and how."""

    on: str
    join: tuple[str, ...] = ("left", "right")  # names of the inputs
    algorithm: str = ""
    plan: str = ""  # the text of explain
    memory_bytes: int | None = None
    where: str = "in process"
    began: str = ""  # wall-clock time
    batched: bool = False  # snapshots are reported in hindsight: each covers the time since the previous one

    @property
    def title(self) -> str:
        return " ⋈ ".join(self.join)


class Noted(NamedTuple):
    """A recorded moment, with the seconds since the start."""

    second: float
    moment: Moment


class ObservedRun(Protocol):
    """A run to be displayed."""

    heading: Heading | None
    outcome: str
    error: str

    @property
    def latest(self) -> Moment: ...
    @property
    def seconds(self) -> float: ...
    @property
    def silent_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    heading: Heading
    moments: Sequence[Noted]  # a selection, if there are many; the last is the latest
    seconds: float  # duration
    outcome: str
    error: str
    silent_s: float  # time since the last write, if it has not ended

    @property
    def latest(self) -> Moment:
        return self.moments[-1].moment

    @property
    def running(self) -> bool:
        return self.outcome == RUNNING


def take_snapshot(run: ObservedRun, noted: Sequence[Noted]) -> RunSnapshot:
    seconds, latest = run.seconds, run.latest
    if run.heading is not None and run.heading.batched:
        noted = [*noted[:1], *(after for before, after in pairwise(noted) if after.moment != before.moment)]
    last = Noted(max(seconds, noted[-1].second if noted else 0.0), latest)
    again = len(noted) > 1 and noted[-1].moment is latest
    moments = [*_some(noted[:-1] if again else noted), last]
    return RunSnapshot(run.heading or Heading("", ()), moments, last.second, run.outcome, run.error, run.silent_s)


def _some(moments: Sequence[Noted]) -> Sequence[Noted]:
    """Reduce the number of moments. Keeps the one with the first result, and the last."""
    step = -(-len(moments) // MOST_MOMENTS)
    if step <= 1:
        return moments
    first = bisect_left(moments, 1, key=lambda noted: noted.moment.results)
    return [*moments[:first:step], *moments[first:-1:step], moments[-1]]


class StateSpan(NamedTuple):
    """A span of time in one state."""

    start: float
    end: float
    state: str

    def __str__(self) -> str:
        return f"{self.state}, {format_seconds(self.start)} to {format_seconds(self.end)}"


class PhaseRow(NamedTuple):
    phase: str
    seconds: float
    results: int
    share: float  # of all results


def state(snapshot: RunSnapshot) -> str:
    """The phase of a run, or how it ended."""
    return _busy(_previous_moment(snapshot), snapshot.latest) if snapshot.running else snapshot.outcome


def describe_state(snapshot: RunSnapshot) -> str:
    """A description of the state. Empty if its name is enough."""
    now = state(snapshot)
    words = PHASES.get(now) or OUTCOMES.get(now, "")
    return "" if words == now else words


def sources(snapshot: RunSnapshot) -> list[SourceState]:
    """The current states of the sources."""
    before, last = _previous_moment(snapshot), snapshot.latest
    return [replace(source, state=_source_state(before, last, n)) for n, source in enumerate(last.sources)]


def phase_bands(moments: Sequence[Noted]) -> list[StateSpan]:
    """The states of the join: for each interval, the one that took the most time."""
    return _merge_bands(
        StateSpan(before.second, after.second, _busy(before.moment, after.moment))
        for before, after in pairwise(moments)
    )


def source_bands(moments: Sequence[Noted], number: int) -> list[StateSpan]:
    """The states of one source."""
    return _merge_bands(
        StateSpan(before.second, after.second, _source_state(before.moment, after.moment, number))
        for before, after in pairwise(moments)
    )


def _previous_moment(snapshot: RunSnapshot) -> Moment:
    """The moment recorded before the latest."""
    return snapshot.moments[-2 if len(snapshot.moments) > 1 else -1].moment


def _busy(before: Moment, after: Moment) -> str:
    """The phase that took the most time. Waiting counts as arriving if any rows came."""
    spent = {phase: seconds - before.seconds.get(phase, 0.0) for phase, seconds in after.seconds.items()}
    most = max(spent, key=lambda phase: spent[phase], default=after.phase)
    phase = most if spent.get(most, 0.0) > 0 else after.phase
    came = any(_rows(after, n) > _rows(before, n) for n in range(len(after.sources)))
    return "arriving" if phase == "waiting" and came else phase


def _source_state(before: Moment, after: Moment, number: int) -> str:
    state = after.sources[number].state if number < len(after.sources) else "arriving"
    return "arriving" if state == "stalled" and _rows(after, number) > _rows(before, number) else state


def _rows(moment: Moment, number: int) -> int:
    return moment.sources[number].rows if number < len(moment.sources) else 0


def _merge_bands(bands: Iterator[StateSpan]) -> list[StateSpan]:
    merged: list[StateSpan] = []
    for band in bands:
        if merged and merged[-1].state == band.state:
            merged[-1] = merged[-1]._replace(end=band.end)
        elif band.end > band.start:
            merged.append(band)
    return merged


def by_phase(snapshot: RunSnapshot) -> list[PhaseRow]:
    """Time and results of each phase that occurred."""
    last = snapshot.latest
    total = max(1, last.results)
    phases = [*PHASES, *(phase for phase in last.seconds if phase not in PHASES)]
    return [
        PhaseRow(phase, last.seconds.get(phase, 0.0), found, found / total)
        for phase in phases
        if (found := last.found.get(phase, 0)) or last.seconds.get(phase, 0.0) >= 0.0005
    ]


def first_result_s(moments: Sequence[Noted]) -> float | None:
    return next((noted.second for noted in moments if noted.moment.results), None)


def rate(snapshot: RunSnapshot) -> float:
    """Recent results per second; for a finished run, the average."""
    moments = snapshot.moments
    last = moments[-1]
    if not snapshot.running:
        return last.moment.results / last.second if last.second else 0.0
    since = next((noted for noted in reversed(moments) if noted.second <= last.second - RECENT_S), moments[0])
    gone = last.second - since.second
    return (last.moment.results - since.moment.results) / gone if gone else 0.0


def peak(moments: Sequence[Noted], name: str) -> int | None:
    """The maximum of `resident_rows` or `spilled_rows`."""
    return max((rows for noted in moments if (rows := getattr(noted.moment, name)) is not None), default=None)


class ShownFigure(NamedTuple):
    """A figure of a streaming join, formatted."""

    label: str
    now: str
    most: str  # empty for a figure that only grows


def shown_figures(snapshot: RunSnapshot) -> list[ShownFigure]:
    """The known figures."""
    found = []
    for figure in SHOWN:
        known = [noted.moment.figures[figure.name] for noted in snapshot.moments if figure.name in noted.moment.figures]
        if figure.name in snapshot.latest.figures:
            most = _amount(figure, max(known)) if figure.over_time == "last" else ""
            found.append(ShownFigure(figure.label, _amount(figure, snapshot.latest.figures[figure.name]), most))
    return found


def _amount(figure: Figure, value: int) -> str:
    match figure.unit:
        case "bytes":
            return format_bytes(value)
        case "microseconds":
            return f"{value / 1000:,.0f} ms"
    return f"{value:,}"


def expectation(snapshot: RunSnapshot) -> str:
    """The expected number of results, in words."""
    estimate, results = snapshot.latest.estimate, snapshot.latest.results
    if snapshot.outcome == DONE:
        return f"{results:,}, all of them"
    if estimate is None:
        return "not known yet"
    if estimate.low == estimate.high:
        return f"{estimate.total:,.0f}"
    bounds = f"{short(estimate.low)} to {short(estimate.high)} with {format_share(estimate.confidence)}"
    return f"about {short(estimate.total)}, {bounds}"


def early_share(snapshot: RunSnapshot) -> float | None:
    """The share of results that were emitted before the inputs ended. None if unknown."""
    latest = snapshot.latest
    if snapshot.outcome != DONE or not latest.results or not latest.sources:
        return None
    return 1 - latest.found.get("cleanup", 0) / latest.results


def missing(snapshot: RunSnapshot) -> str:
    """Caveats about the figures. Empty if there are none."""
    if snapshot.outcome == FAILED:
        return snapshot.error or "the join failed"
    if snapshot.outcome == STOPPED:
        return "The join was stopped before its end: there may be more results."
    if snapshot.silent_s > SILENT_S:
        return f"No update for {snapshot.silent_s:,.0f} s: the process may have been killed."
    return ""
