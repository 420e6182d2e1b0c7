"""Rows, results and events: the vocabulary that all layers share.

An input is identified by its position, from 0; `Side.LEFT` and `Side.RIGHT` name the two inputs of an ordinary join.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Rows = NDArray[Any]
"""Row positions inside a record batch: int32 where all of them fit, else int64."""


class Side(IntEnum):
    """The inputs of a join of two. The value is the input's position and indexes per-input state: `state[side]`."""

    LEFT = 0
    RIGHT = 1

    @cached_property
    def other(self) -> Side:
        return Side.LEFT if self is Side.RIGHT else Side.RIGHT

    @cached_property
    def alias(self) -> str:
        """The name that conditions use for this side."""
        return "lr"[self]


class Phase(StrEnum):
    """The phase that a join is in."""

    ARRIVING = "arriving"
    REACTIVE = "reactive"
    CLEANUP = "cleanup"


class Matches(NamedTuple):
    """Results by row number: result i has row `rows[n][i]` of `batches[n]` for every input n.

    An input is None if its rows are not part of these results: outer joins pad its columns with nulls; semi and anti
    joins do not return them.
    """

    batches: tuple[pa.RecordBatch | None, ...]
    rows: tuple[Rows | None, ...]

    @property
    def size(self) -> int:
        """The number of results."""
        first = self.rows[0]
        return len(first) if first is not None else next(len(rows) for rows in self.rows if rows is not None)

    @property
    def is_complete(self) -> bool:
        """Whether every input has a row in each result."""
        return all(rows is not None for rows in self.rows)

    @classmethod
    def pairs(cls, left: pa.RecordBatch, left_rows: Rows, right: pa.RecordBatch, right_rows: Rows) -> Matches:
        """Matching rows of two inputs."""
        return cls((left, right), (left_rows, right_rows))

    @classmethod
    def oriented(
        cls, side: Side, mine: pa.RecordBatch, my_rows: Rows, theirs: pa.RecordBatch, their_rows: Rows
    ) -> Matches:
        """Pairs found by one side's probe, as left and right rows."""
        if side is Side.LEFT:
            return cls((mine, theirs), (my_rows, their_rows))
        return cls((theirs, mine), (their_rows, my_rows))

    @classmethod
    def single(cls, side: Side, batch: pa.RecordBatch, rows: Rows) -> Matches:
        """Rows of one of two inputs that are results alone, because they have no partner or because they have one."""
        if side is Side.LEFT:
            return cls((batch, None), (rows, None))
        return cls((None, batch), (None, rows))

    def only(self, chosen: NDArray[np.bool_]) -> Matches:
        """A subset of the results."""
        return self._replace(rows=tuple(None if rows is None else rows[chosen] for rows in self.rows))

    # The two inputs of an ordinary join.

    @property
    def left(self) -> pa.RecordBatch:
        return self.batches[Side.LEFT]

    @property
    def right(self) -> pa.RecordBatch:
        return self.batches[Side.RIGHT]

    @property
    def left_rows(self) -> Rows:
        rows = self.rows[Side.LEFT]
        assert rows is not None
        return rows

    @property
    def right_rows(self) -> Rows:
        rows = self.rows[Side.RIGHT]
        assert rows is not None
        return rows


# Events: what a source can do. A schedule is a sequence of events, so that a run can be replayed.


@dataclass(frozen=True, slots=True)
class Arrival:
    """Rows of an input. `placement`: their position among all arrivals, for an operator that sees only some of them."""

    input: int
    batch: pa.RecordBatch
    placement: Any = None


@dataclass(frozen=True, slots=True)
class Stall:
    """No rows arrive during `steps` units of reactive work (None: until the work is done).

    `over` is called after each unit, and returns whether to stop because rows have arrived. A short stall is probably
    only a gap between two batches; users are not notified.
    """

    steps: int | None = None
    over: Callable[[], bool] | None = None
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Watermark:
    """No more rows older than `value` will arrive. `arrived`: how many rows of each side have arrived anywhere."""

    value: int
    arrived: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class End:
    """An input has no more rows."""

    input: int


Event = Arrival | Stall | Watermark | End
