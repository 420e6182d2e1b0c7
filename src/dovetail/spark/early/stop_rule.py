"""When a progressive join has said enough."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from dovetail.core.metrics import Estimate
from dovetail.errors import InputError
from dovetail.execution.in_process import Step
from dovetail.window import microseconds


@dataclass(frozen=True, slots=True)
class Until:
    """A number of results, a relative error of all that is estimated, or a time; whatever comes first."""

    results: int | None = None
    error: float | None = None
    seconds: float | None = None
    started: float = field(default=0.0, compare=False)

    @classmethod
    def read(cls, given: Any) -> Until:
        """10_000 results; 0.01, an error of one percent; "30 seconds" or a timedelta; or several of them."""
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
        return replace(self, started=time.monotonic())

    def is_reached(self, step: Step) -> bool:
        estimates = [step.estimate] if step.aggregates is None else list(step.aggregates.values())
        return self.is_enough(step.results, estimates) or self.is_over

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.seconds is not None and time.monotonic() - self.started >= self.seconds

    def is_enough(self, results: int, estimates: Sequence[Estimate | None]) -> bool:
        """Whether there are enough results, or estimates are good enough."""
        if self.results is not None and results >= self.results:
            return True
        return self.error is not None and all(
            e is not None and e.high - e.low <= 2 * self.error * abs(e.total) for e in estimates
        )
