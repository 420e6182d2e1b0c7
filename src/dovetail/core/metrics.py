"""What a run did and is doing: counters for experiments, progress for users."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

HEARTBEAT_S = 1.0
"""The interval at which an idle cell of a join of bounded streams reports that it has not finished."""


class Estimate(NamedTuple):
    """The expected total number of results and its confidence interval.

    Example:
        >>> import dovetail
        >>> estimate = dovetail.Estimate(total=1000.0, low=950.0, high=1050.0, confidence=0.95)
        >>> (estimate.high - estimate.low) / 2 / estimate.total
        0.05
    """

    total: float
    low: float
    high: float
    confidence: float


@dataclass(slots=True)
class Counters(Mapping[str, int]):
    """Work done so far, in machine-independent units. Read as attributes or as a mapping."""

    rows_received: int = 0
    late_rows: int = 0  # behind the watermark: not joined
    evicted_rows: int = 0  # expired from a window
    merges: int = 0  # merges of sorted runs
    results: int = 0
    probes: int = 0
    pairs_tested: int = 0
    pages_written: int = 0
    pages_read_sequential: int = 0
    pages_read_random: int = 0
    pages_merged: int = 0  # the part of them written or read sequentially, by merges of partitions
    rows_shed: int = 0  # dropped by load shedding
    results_missed: int = 0  # because of load shedding
    results_missed_expected: int = 0  # as estimated from the arrival statistics when the rows were dropped
    peak_rows_in_memory: int = 0
    peak_bytes_in_memory: int = 0
    peak_buffer_rows: int = 0

    def __getitem__(self, name: str) -> int:
        if name not in list(self):
            raise KeyError(name)
        value: int = getattr(self, name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (f.name for f in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has got: the results of its phase so far, and the expected total."""

    phase: str  # preparing, joining, writing
    results: int = 0
    total: int | None = None  # None while unknown
    exact: bool = True  # else the total is an estimate


Observer = Callable[[Progress], None]
"""Called with progress, often; it must return quickly."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """One input of a running join."""

    name: str
    rows: int = 0  # rows that have arrived
    state: str = "arriving"  # arriving, stalled or ended


@dataclass(frozen=True, slots=True)
class Moment:
    """A snapshot of a running join: its phase, its results so far, the rows it holds."""

    phase: str  # preparing; arriving, reactive, cleanup; waiting, if the inputs are idle and there is no pending work
    found: Mapping[str, int] = field(default_factory=dict)  # results, by the phase in which they were found
    seconds: Mapping[str, float] = field(default_factory=dict)  # spent in each phase
    resident_rows: int | None = None  # None if unknown
    spilled_rows: int | None = None
    sources: tuple[SourceState, ...] = ()
    estimate: Estimate | None = None
    objection: str | None = None  # why there is no estimate, if the order of the rows prevents it
    figures: Mapping[str, int] = field(default_factory=dict)  # for streams: those of core/figures.py with a label

    @property
    def results(self) -> int:
        return sum(self.found.values())

    @property
    def state_bytes(self) -> int | None:
        """The size of durable state on disk, if there is any."""
        return self.figures.get("state_bytes")


Watcher = Callable[[Moment], None]
"""Called with snapshots on the thread of the join; it must return quickly."""
