"""When to stop a progressive join."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol

from dovetail.core.metrics import Estimate
from dovetail.errors import InputError
from dovetail.window import microseconds


class Progress(Protocol):
    """The part of a step that stop rules read."""

    @property
    def results(self) -> int: ...
    @property
    def estimate(self) -> Estimate | None: ...
    @property
    def aggregates(self) -> Mapping[str, Estimate | None] | None: ...


@dataclass(slots=True)
class Until:
    """A number of results, a relative error of all estimates, or a time; the first one reached ends the join."""

    results: int | None = None
    error: float | None = None
    seconds: float | None = None
    started: float | None = field(default=None, compare=False)

    @classmethod
    def read(cls, given: Any) -> Until:
        """Reads 10_000 (results); 0.01, an error of one percent; "30 seconds" or a timedelta; or several of them."""
        match given:
            case None:
                return cls()
            case Until():
                return given
            case bool():
                pass
            case int() if given > 0:
                return cls(results=given)
            case float() if 0 < given < 1:
                return cls(error=given)
            case str() | timedelta():
                return cls(seconds=microseconds(given) / 1e6)
            case tuple() | list():
                merged = cls()
                for one in map(cls.read, given):
                    merged = replace(
                        merged,
                        results=merged.results or one.results,
                        error=merged.error or one.error,
                        seconds=merged.seconds or one.seconds,
                    )
                return merged
        raise InputError(
            f"until= takes a number of results (10_000), a relative error (0.01), a time ('30 seconds'), or a list of "
            f"them; got {given!r}."
        )

    def start_clock(self) -> Until:
        self.started = time.monotonic()
        return self

    def is_reached(self, step: Progress) -> bool:
        estimates = [step.estimate] if step.aggregates is None else list(step.aggregates.values())
        return self.is_enough(step.results, estimates) or self.is_over

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.left_s is not None and self.left_s <= 0

    @property
    def left_s(self) -> float | None:
        """The remaining time; None: unlimited."""
        if self.seconds is None or self.started is None:
            return self.seconds
        return self.started + self.seconds - time.monotonic()

    def is_enough(self, results: int, estimates: Sequence[Estimate | None]) -> bool:
        """Whether there are enough results, or all estimates are precise enough."""
        if self.results is not None and results >= self.results:
            return True
        return self.error is not None and all(
            e is not None and e.high - e.low <= 2 * self.error * abs(e.total) for e in estimates
        )
