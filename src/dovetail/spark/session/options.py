"""Reads options of streams: when their inputs end, and how long rows may wait."""

from __future__ import annotations

from dovetail.request import Request
from dovetail.spark.sources.columns import END
from dovetail.window import microseconds

AVAILABLE = "available"
"""Streams end with the first micro-batch that has no input."""
SOURCE = "source"
"""Dovetail's sources signal the end of stream in a column, which is dropped from the result."""
LATENCY_S = 3.0


def latency_s(request: Request) -> float:
    """How long rows may wait for background work to pause."""
    return LATENCY_S if request.latency is None else microseconds(request.latency) / 1e6


def ends_of(request: Request) -> tuple[str, str] | None:
    """The conditions of the rows that end each side."""
    end = request.end
    if end is None or end == AVAILABLE:
        return None
    if end == SOURCE:
        return (END, END)
    return (end, end) if isinstance(end, str) else (end[0], end[1])
