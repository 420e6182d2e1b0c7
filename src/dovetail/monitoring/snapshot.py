"""An immutable snapshot of a run: everything that a view of it needs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

from dovetail.core.metrics import Moment

RUNNING, DONE, STOPPED, FAILED = "running", "done", "stopped", "failed"
MOST_MOMENTS = 1500  # more are not seen in a picture


@dataclass(frozen=True, slots=True)
class Heading:
    """What is joined, and how."""

    on: str
    join: tuple[str, ...] = ("left", "right")  # names of the inputs
    algorithm: str = ""
    plan: str = ""  # as explained
    memory_bytes: int | None = None
    where: str = "in process"
    began: str = ""  # by the clock on the wall
    batched: bool = False  # snapshots are reported afterwards: each covers the time since the previous one

    @property
    def title(self) -> str:
        return " ⋈ ".join(self.join)


class Noted(NamedTuple):
    """A snapshot, with the seconds since the start."""

    second: float
    moment: Moment


class ObservedRun(Protocol):
    """What is looked at."""

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
    moments: Sequence[Noted]  # some of them, if there are many; the last is the latest
    seconds: float  # it has taken
    outcome: str
    error: str
    silent_s: float  # since the last write, if it has not ended

    @property
    def latest(self) -> Moment:
        return self.moments[-1].moment

    @property
    def running(self) -> bool:
        return self.outcome == RUNNING


def glance_at(run: ObservedRun, noted: Sequence[Noted]) -> RunSnapshot:
    seconds, latest = run.seconds, run.latest
    if run.heading is not None and run.heading.batched:
        noted = [*noted[:1], *(after for before, after in pairwise(noted) if after.moment != before.moment)]
    last = Noted(max(seconds, noted[-1].second if noted else 0.0), latest)
    again = len(noted) > 1 and noted[-1].moment is latest
    moments = [*_some(noted[:-1] if again else noted), last]
    return RunSnapshot(run.heading or Heading("", ()), moments, last.second, run.outcome, run.error, run.silent_s)


def _some(moments: Sequence[Noted]) -> Sequence[Noted]:
    """Few enough moments, with the one of the first result, and the last."""
    step = -(-len(moments) // MOST_MOMENTS)
    if step <= 1:
        return moments
    first = bisect_left(moments, 1, key=lambda noted: noted.moment.results)
    return [*moments[:first:step], *moments[first:-1:step], moments[-1]]
