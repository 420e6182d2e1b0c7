"""Positions of rows in a window, and which rows are in the window together.

rows of both streams    |position of l - position of r| < size         position: number of the arrival
time                    the same                                      position: event time
a condition's limits    low <= position of l - position of r <= high  position: event time
rows of each stream     r is one of the last `size` right rows when l arrives, and vice versa
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Side
from dovetail.window import Window

Words = NDArray[np.int64]
Rows = NDArray[Any]
Flags = NDArray[np.bool_]

LEAST = -(2**62)  # the time of rows without a time
COLUMNS = ("__at", "__own", "__other")


class WindowPositions(NamedTuple):
    """One entry per row in each array."""

    at: Words  # number of the arrival, or event time in microseconds
    own: Words  # number among the rows of its side
    other: Words  # number of rows of the other side that arrived before

    @classmethod
    def none(cls) -> WindowPositions:
        return cls(*(np.empty(0, np.int64) for _ in COLUMNS))

    def of(self, rows: Rows) -> WindowPositions:
        return WindowPositions(self.at[rows], self.own[rows], self.other[rows])

    def extent(self) -> Extent:
        ends = [(int(column.min()), int(column.max())) if len(column) else (0, -1) for column in self]
        return Extent(*ends)


class Placement(NamedTuple):
    """The positions of a batch among all arrivals, for an operator that stores only some rows."""

    positions: WindowPositions
    stores: Flags | None = None  # which rows are stored, not just probed with; None: all


class Extent(NamedTuple):
    """The least and the greatest value of each position."""

    at: tuple[int, int]
    own: tuple[int, int]
    other: tuple[int, int]


def joined(places: list[WindowPositions]) -> WindowPositions:
    return WindowPositions(*(np.concatenate(columns) for columns in zip(*places, strict=True)))


def within(window: Window, left: WindowPositions, left_rows: Rows, right: WindowPositions, right_rows: Rows) -> Flags:
    """Which pairs of rows are in the window together."""
    together: Flags
    if window.by_own:
        together = right.own[right_rows] >= left.other[left_rows] - window.size
        together &= left.own[left_rows] >= right.other[right_rows] - window.size
        return together
    (low, high), apart = window.span, left.at[left_rows] - right.at[right_rows]
    together = (apart >= low) & (apart <= high)
    return together


def sure_rows(window: Window, side: Side, probes: Extent, kept: WindowPositions) -> Flags:
    """Which kept rows are in the window together with every probe; `side` is that of the probes."""
    if window.by_own:
        return (kept.own >= probes.other[1] - window.size) & (probes.own[0] >= kept.other - window.size)
    low, high = _span(window, side)
    return (probes.at[1] - kept.at <= high) & (probes.at[0] - kept.at >= low)


def gone_rows(window: Window, side: Side, probes: Extent, kept: WindowPositions) -> Flags:
    """Which kept rows are not in the window with any of the probes."""
    if window.by_own:
        return (kept.own < probes.other[0] - window.size) | (probes.own[1] < kept.other - window.size)
    low, high = _span(window, side)
    return (probes.at[0] - kept.at > high) | (probes.at[1] - kept.at < low)


def _span(window: Window, side: Side) -> tuple[int, int]:
    """The least and the greatest distance (probe - kept) of a probe of this side and a kept row."""
    low, high = window.span
    return (low, high) if side is Side.LEFT else (-high, -low)


class Bound(NamedTuple):
    """A pair is in the window only if `third` of the kept row is not less than `least` of the probe."""

    least: Words  # by probe
    third: Words  # by kept row


def bounds(window: Window, probes: WindowPositions, kept: WindowPositions) -> tuple[Bound, ...]:
    """The bounds that define the window of each left probe, over right rows that arrived before it."""
    before = Bound(1 - probes.other, -kept.own)
    if window.by_own:
        return before, Bound(probes.other - window.size, kept.own)
    low, high = window.span
    not_too_old = Bound(probes.at - high, kept.at)
    if not window.by_time:
        return before, not_too_old
    return before, not_too_old, Bound(low - probes.at, -kept.at)


def surely(window: Window, left: Extent, right: Extent) -> bool:
    """Whether all pairs are in the window together."""
    if window.by_own:
        return right.own[0] >= left.other[1] - window.size and left.own[0] >= right.other[1] - window.size
    low, high = window.span
    return left.at[1] - right.at[0] <= high and left.at[0] - right.at[1] >= low


def never(window: Window, left: Extent, right: Extent) -> bool:
    """Whether no pairs are in the window together."""
    if window.by_own:
        return right.own[1] < left.other[0] - window.size or left.own[1] < right.other[0] - window.size
    low, high = window.span
    return left.at[0] - right.at[1] > high or left.at[1] - right.at[0] < low


def closed(window: Window, side: Side, places: WindowPositions, horizon: int, own_count: int) -> Flags:
    """Which rows of a side can no longer match: future rows are at `horizon` or later, and `own_count` rows of the side
    have arrived."""
    if window.by_own:
        return places.own < own_count - window.size
    return places.at < horizon + window.expiry(side)


def may_close(window: Window, side: Side, extent: Extent, horizon: int, own_count: int) -> bool:
    """Whether `closed` holds for any row."""
    if window.by_own:
        return extent.own[0] < own_count - window.size
    return extent.at[0] < horizon + window.expiry(side)


def late_flags(window: Window, side: Side, batch: pa.RecordBatch, horizon: int) -> Flags:
    """Which rows are before the horizon. Rows without a time never are."""
    column = window.late_column(side)
    if column is None:
        return np.zeros(batch.num_rows, np.bool_)
    times = event_times(batch.column(column))
    late: Flags = (times < horizon) & (times != LEAST)
    return late


def event_times(column: pa.Array) -> Words:
    """Event times in microseconds; LEAST for null."""
    times = column.cast(
        pa.timestamp("us", column.type.tz) if pa.types.is_timestamp(column.type) else pa.timestamp("us")
    )
    return np.asarray(times.cast(pa.int64()).fill_null(LEAST))
