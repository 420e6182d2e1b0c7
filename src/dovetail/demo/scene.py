"""The state of a run: which rows each server has sent, what each join has found, and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dovetail.demo.senders import Sender

CELLS = 2
Fingerprint = tuple[int, Any]
"""The number of rows, and a sum of their hashes."""


class Rival:
    """Spark's own join: it could start when the last row has arrived; here it runs after ours is complete."""

    def __init__(self, join: Callable[[], Fingerprint]) -> None:
        self._join = join
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.found: Fingerprint = (0, None)
        self.seconds: float | None = None  # how long it took

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dovetail-demo-spark", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self.found = self._join()
        except BaseException as error:
            self._failure = error
        self.seconds = time.monotonic() - began

    @property
    def is_over(self) -> bool:
        """Whether it has its result; raises its error if it failed."""
        if self._failure is not None:
            raise self._failure
        return self.seconds is not None

    @property
    def words(self) -> str:
        if self._thread is None:
            return "waits for the last row"
        return f"{self.found[0]:,}" if self.seconds is not None else "joins, with its clock set back to the last row"


class SceneMoment(NamedTuple):
    elapsed: float
    script_s: float  # on the senders' clock
    results: int
    phase: str


@dataclass(slots=True)
class Scene:
    """The state of a run, for the screen and for the comparison at the end."""

    algorithm: str
    senders: tuple[Sender, Sender]
    rival: Rival
    made: float = field(default_factory=lambda: time.monotonic())
    began: float | None = None  # when the senders' clocks started
    sent: float | None = None  # when the last row was sent
    ended: float | None = None
    joined: int = 0  # rows that Spark has read
    results: int = 0
    of_spilled: int = 0  # results from rows on disk, before the last row arrived
    in_memory: int = 0
    most_in_memory: int = 0
    on_disk: int = 0
    micro_batches: int = 0
    phase: str = "starting"
    history: list[SceneMoment] = field(default_factory=list)

    def begin(self) -> None:
        self.began = time.monotonic()
        for sender in self.senders:
            sender.rows.begin()

    @property
    def elapsed(self) -> float:
        return 0.0 if self.began is None else (self.ended or time.monotonic()) - self.began

    @property
    def is_over(self) -> bool:
        """Whether both joins are complete."""
        return self.rival.is_over and self.ended is not None

    @property
    def now_s(self) -> float:
        """The time that charts show; it stops when both joins are complete."""
        if self.began is None:
            return 0.0
        if self.ended is not None and self.rival.seconds is not None:
            return max(self.elapsed, self.rival_s)
        return time.monotonic() - self.began

    @property
    def sent_s(self) -> float:
        """When the last row was sent."""
        return 0.0 if self.began is None or self.sent is None else self.sent - self.began

    @property
    def rival_s(self) -> float:
        """When Spark's own join would have finished: it starts when the last row has arrived."""
        return 0.0 if self.rival.seconds is None else self.sent_s + self.rival.seconds

    @property
    def script_end_s(self) -> float:
        """When the last row arrives, on the senders' clock."""
        return float(max(sender.rows.seconds[-1] for sender in self.senders))

    @property
    def transmitted(self) -> bool:
        return all(sender.rows.ended() for sender in self.senders)

    @property
    def all_rows(self) -> int:
        """The rows that Spark takes in total: each source adds one that says that it has ended."""
        return sum(len(sender.rows.seconds) + 1 for sender in self.senders)

    def look(self) -> None:
        """Update the phase and the history.

        A silence lasts as long as the script says, counted from when Spark has taken all rows sent before, however slow
        it is: until then the senders' clocks are stopped.
        """
        waiting = sum(sender.sent for sender in self.senders) - self.joined
        if self.transmitted and self.sent is None:
            self.sent = time.monotonic()
        silent = all(sender.silent for sender in self.senders)
        for sender in self.senders:
            sender.rows.hold(self.began is not None and silent and waiting > 0)
        if self.ended is not None:
            self.phase = "complete"
        elif self.began is None:
            self.phase = "starting"
        elif self.transmitted:
            self.phase = "rest"
        else:
            self.phase = "silent" if silent and waiting <= 0 else "arriving"
        if self.began is not None:
            self.history.append(SceneMoment(self.now_s, self.senders[0].rows.elapsed(), self.results, self.phase))

    def record_results(self, results: int, arrived: int, spilled: int = 0) -> None:
        """Record a micro-batch. `spilled`: results from rows on disk, besides those of its arrivals."""
        self.micro_batches += 1
        self.joined += arrived
        self.results += results
        if not self.transmitted and self.on_disk:
            self.of_spilled += spilled if arrived else results

    def keeps(self, in_memory: int, on_disk: int) -> None:
        """Record what the cells hold; fewer rows than before means that not all cells have reported."""
        if in_memory + on_disk >= self.in_memory + self.on_disk:
            self.in_memory, self.on_disk = in_memory, on_disk
            self.most_in_memory = max(self.most_in_memory, in_memory)

    @property
    def memory_share(self) -> float:
        """The share of kept rows in memory. Rows of one input are in every cell, so they count several times."""
        return self.in_memory / max(1, self.in_memory + self.on_disk)

    @property
    def early(self) -> int:
        """Results before the last row arrived."""
        return min(self.results, self.results_at(self.script_end_s))

    def results_at(self, script_s: float) -> int:
        return max((moment.results for moment in self.history if moment.script_s <= script_s), default=0)

    def moments(self, seconds: list[float]) -> list[SceneMoment]:
        """The last moment before each of these times."""
        times = [moment.elapsed for moment in self.history]
        places = np.searchsorted(times, seconds, side="right")
        return [self.history[place - 1] if place else SceneMoment(0.0, 0.0, 0, "arriving") for place in places]
