"""Takes snapshots of a running join, for monitoring.

    events --taken--> driver --found--> steps
                |                  |
                +-- JoinMonitor ---+----> Moment: periodically, and always before waiting for input

It runs on the join's own thread: the operator is sampled between two units of work, never during one. A source counts
as stalled if the join had to wait for it, or if only other sources have delivered rows for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from dovetail.core.metrics import Estimate, Moment, SourceState, Watcher
from dovetail.core.rows import Arrival, End, Event, Phase, Stall
from dovetail.operators.protocol import Usage

EVERY_S = 0.05  # between snapshots; sampling an operator takes a few microseconds
QUIET_S = 0.5  # without rows from one input, while others deliver
QUIET_BATCHES = 4  # batches from others: while the join processes a single one, it cannot tell what arrives
WAITING = "waiting"


class Steplike(Protocol):
    @property
    def phase(self) -> Phase: ...
    @property
    def results(self) -> int: ...
    @property
    def estimate(self) -> Estimate | None: ...
    @property
    def objection(self) -> str | None: ...


S = TypeVar("S", bound=Steplike)


class JoinMonitor:
    """Records the arrivals and results of a join, and reports them to observers."""

    def __init__(self, tell: Watcher, names: Sequence[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._sources = [SourceState(name) for name in names]
        self._came = [0.0] * len(names)  # when each source last delivered rows
        self._others = [0] * len(names)  # batches delivered by the others since then
        self._phase: str = "preparing"
        self._told: str = ""  # the phase that was last reported
        self._since = 0.0  # the time up to which phases are accounted for
        self._due = 0.0
        self._seconds: dict[str, float] = {}
        self._found: dict[str, int] = {}
        self._usage: Callable[[], Usage] | None = None
        self._expected: Callable[[], Estimate | None] | None = None
        self._estimate: Estimate | None = None
        self._objected: Callable[[], str | None] | None = None
        self._objection: str | None = None

    def meet(
        self,
        usage: Callable[[], Usage],
        expected: Callable[[], Estimate | None],
        objected: Callable[[], str | None] | None = None,
    ) -> None:
        """Attach the operator's figures: the rows it holds, its estimate of the results, or why there is none."""
        self._begin()
        self._usage, self._expected, self._objected = usage, expected, objected

    def events(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass on the events, recording each one as the driver takes it."""
        for event in events:
            self._take(event)
            yield event
            if isinstance(event, Stall):  # there is no pending work
                self._enter(WAITING)
                if not event.is_short:  # and rows may take long to arrive
                    self.tell()

    def record_results(self, phase: Phase, results: int) -> None:
        self._enter(phase.value)
        self._found[phase.value] = self._found.get(phase.value, 0) + results
        if self._clock() >= self._due:
            self.tell()

    def steps(self, steps: Iterable[S]) -> Iterator[S]:
        """Pass on the steps of a join without other metrics, recording each one."""
        self._begin()
        for step in steps:
            self._estimate, self._objection = step.estimate, step.objection
            self.record_results(step.phase, step.results - sum(self._found.values()))
            yield step
        self.tell()

    def tell(self) -> None:
        now = self._enter(self._phase)
        self._due, self._told = now + EVERY_S, self._phase
        usage = None if self._usage is None else self._usage()
        if self._expected is not None:
            self._estimate = self._expected()
        if self._objected is not None:
            self._objection = self._objected() if self._estimate is None else None
        self._tell(
            Moment(
                self._phase,
                dict(self._found),
                dict(self._seconds),
                None if usage is None else usage.resident_rows,
                None if usage is None else usage.spilled_rows,
                tuple(self._sources),
                self._estimate,
                self._objection,
            )
        )

    def _begin(self) -> None:
        self._since = self._clock()
        self._came = [self._since] * len(self._sources)

    def _take(self, event: Event) -> None:
        match event:
            case Arrival(number, batch):
                now = self._enter(Phase.ARRIVING)
                self._came[number], self._others[number] = now, 0
                self._set(number, "arriving", batch.num_rows)
                for other in range(len(self._sources)):
                    self._others[other] += other != number
                    if self._others[other] >= QUIET_BATCHES and now - self._came[other] > QUIET_S:
                        self._set(other, "stalled")
            case Stall(is_short=True):
                self._enter(Phase.REACTIVE)
                return
            case Stall():
                self._enter(Phase.REACTIVE)
                for number in range(len(self._sources)):
                    self._set(number, "stalled")
            case End(number):
                self._sources[number] = replace(self._sources[number], state="ended")
                if all(source.state == "ended" for source in self._sources):
                    self._enter(Phase.CLEANUP)
        if self._phase != self._told or self._clock() >= self._due:  # the first unit of work of a phase may take long
            self.tell()

    def _set(self, number: int, state: str, rows: int = 0) -> None:
        source = self._sources[number]
        if source.state != "ended":
            self._sources[number] = SourceState(source.name, source.rows + rows, state)

    def _enter(self, phase: str) -> float:
        """Enter a phase; the time since the last call counts for the previous one."""
        now = self._clock()
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = str(phase), now
        return now
