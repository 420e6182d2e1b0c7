"""Sizes of the experiments: for CI, for a desktop, or as printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scale:
    name: str
    size: int  # position in the arguments of `pick`
    seed_count: int
    with_shares: bool = True  # also measure what no claim is judged by: shares in bytes, and of `auto`

    @property
    def seeds(self) -> range:
        return range(self.seed_count)

    def pick(self, ci: T, small: T, paper: T) -> T:
        """The value for this scale."""
        return (ci, small, paper)[self.size]


SCALES = {"ci": Scale("ci", 0, 2), "small": Scale("small", 1, 5), "paper": Scale("paper", 2, 5)}
