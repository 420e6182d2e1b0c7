"""What a matcher can tell of two complete sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dovetail.batch import Rows, Side

Flags = NDArray[np.bool_]


class Matcher(Protocol):
    """The matching pairs of two sides by row number. Nothing is enumerated before it is asked for."""

    seen: int  # candidates that `pairs` has looked at so far

    @property
    def exact(self) -> bool:
        """Whether every candidate is a pair."""

    def candidates(self) -> int:
        """How many pairs have to be looked at; none is enumerated."""

    def count(self) -> int:
        """How many pairs there are."""

    def pairs(self, room: int) -> Iterator[tuple[Rows, Rows]]:
        """All pairs (left row, right row), in chunks of about `room`."""

    def partnered(self, side: Side) -> Flags:
        """Which rows of a side have a partner."""
