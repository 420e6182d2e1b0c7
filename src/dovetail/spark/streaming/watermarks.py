"""Reads the watermarks of streams: the delay given to `withWatermark`, and the limits on state that follow from it.

`withWatermark` stores the delay in the metadata of the event-time column. Projections, filters and renaming keep it,
expressions over the column lose it. It is also visible in Connect sessions.

A time window takes its delay from the watermarks. Without a window, a condition that bounds event time limits how long
rows can have partners, by the same rules as in Spark's own streaming joins:

    l.ts >= r.ts + c, watermark W on r.ts     rows of l expire at l.ts <= W + c - 1 ms
    l.ts >  r.ts + c, watermark W on r.ts     rows of l expire at l.ts <= W + c
    l.ts =  r.ts, watermark W on either       rows of both expire at ts <= W

The time of a window from `groupBy(window(…))` is its end, as in Spark. The condition reads it from a computed column;
`ends` are the names of these columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField

from dovetail.condition import Condition
from dovetail.condition.time_bounds import TimeBound, time_bounds
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.spark.frames.schemas import DELAY_MS, is_window
from dovetail.window import SLIDES, UNBOUNDED, Limits, Watermarks, Window

MILLISECOND = 1000  # the unit of Spark's watermarks, in microseconds

Columns = tuple[str | None, str | None]


def with_delays(window: Window, inputs: tuple[DataFrame, DataFrame]) -> Window:
    """The window with the delays of its inputs' watermarks."""
    return window if window.on is None else window.with_watermarks(_delays(window.on, inputs))


def other_watermarks(window: Window, inputs: tuple[DataFrame, DataFrame]) -> tuple[str, ...]:
    """Advice on watermarks that do not apply to the window's event time, because they are on another column."""
    if window.on is None or window.delay_given or window.limits is not None:
        return ()
    return tuple(
        f"the watermark of {side.alias}.{field.name} is not used: the window is of {side.alias}.{window.on[side]}"
        for side in Side
        for field in inputs[side].schema.fields
        if DELAY_MS in field.metadata and field.name != window.on[side]
    )


def bounded_window(condition: Condition, inputs: tuple[DataFrame, DataFrame], ends: Columns) -> Window | None:
    """The limits on event time from the condition and the watermarks. None if there are none."""
    bounds = [bound for one in time_bounds(condition) for bound in (one, _mirrored(one))]
    delays = [_event_times(inputs[side], ends[side]) for side in Side]
    left, right = (_mark([bound.left for bound in bounds[side::2]], delays[side]) for side in Side)
    marks = (left, right)
    leaving = [_leaving(bounds[side::2], marks[side], marks[side.other]) for side in Side]
    if leaving[Side.LEFT] is None and leaving[Side.RIGHT] is None:
        return None
    on, expiry = [], []
    for side, found in zip(Side, leaving, strict=True):
        columns = [bound.left for bound in bounds[side::2]]
        on.append(found[0] if found is not None else _preferred(columns, marks[side]))
        expiry.append(found[1] if found is not None else -UNBOUNDED)
    of_both = [b for b in bounds[::2] if (b.left, b.right) == (on[0], on[1])]
    low = max((b.offset + b.strict for b in of_both if b.below), default=-UNBOUNDED)
    high = min((b.offset - b.strict for b in of_both if not b.below), default=UNBOUNDED)
    size = max(1, high - low + 1) if max(high, -low) < UNBOUNDED else 2 * UNBOUNDED
    return Window(
        size,
        max(1, size // SLIDES),
        (on[0], on[1]),
        watermarks=(delays[0].get(left), delays[1].get(right)),
        limits=Limits((low, high), (expiry[0], expiry[1]), marks),
    )


def _event_times(frame: DataFrame, end: str | None) -> dict[str | None, int]:
    """Delays of watermarks in microseconds, by the columns from which the condition reads times."""
    marked = [field for field in frame.schema.fields if DELAY_MS in field.metadata]
    return {_time_name(f, end): 1000 * int(f.metadata[DELAY_MS]) for f in marked if not is_window(f) or end is not None}


def _time_name(field: StructField, end: str | None) -> str | None:
    return end if is_window(field) else field.name


def _mark(bounded: list[str], delays: Mapping[str | None, int]) -> str | None:
    """The column with the watermark. A window and its `window_time` share one, so the bounded column is used."""
    return next((name for name in delays if name in bounded), next(iter(delays), None))


def _mirrored(bound: TimeBound) -> TimeBound:
    """The same bound on right - left."""
    return TimeBound(bound.right, bound.left, not bound.below, -bound.offset, bound.strict, bound.equal)


def _leaving(bounds: Sequence[TimeBound], mark: str | None, other: str | None) -> tuple[str, int] | None:
    """From bounds on own - other time: the column, and the offset from the other's watermark at which rows expire."""
    useful = [bound for bound in bounds if bound.below and bound.right == other]
    if not useful:
        same = mark is not None and any(bound.equal and bound.left == mark and not bound.offset for bound in bounds)
        return (mark, 0) if mark is not None and same else None
    column = _preferred([bound.left for bound in useful], mark)
    return column, min(_offset(bound) for bound in useful if bound.left == column)


def _preferred(columns: list[str], mark: str | None) -> str:
    """The column with the watermark, if it is one of them."""
    return mark if mark is not None and mark in columns else columns[0]


def _offset(bound: TimeBound) -> int:
    """The bound in whole milliseconds; one less if rows at the bound can still match, as in Spark."""
    whole = bound.offset // MILLISECOND * MILLISECOND
    return whole if bound.strict or bound.equal else whole - MILLISECOND


def event_time_fields(
    fields: list[StructField], inputs: tuple[DataFrame, DataFrame], ends: Columns, window: Window | None, how: JoinType
) -> list[StructField]:
    """The fields of a result, marked as event time if no row can be behind the watermark.

    Later operators, such as an aggregation by time, drop rows behind the watermark as late. Spark's own join delays the
    watermark of its results instead, which a Python operator cannot do.
    """
    sources = [(side, _time_name(field, ends[side])) for side in Side for field in inputs[side].schema.fields]
    kept = _in_time(window, how)
    return [
        field if source in kept else without_watermark(field) for field, source in zip(fields, sources, strict=False)
    ]


def without_watermark(field: StructField) -> StructField:
    """The field, no longer marked as event time."""
    metadata = {key: value for key, value in field.metadata.items() if key != DELAY_MS}
    return StructField(field.name, field.dataType, field.nullable, metadata)


def _in_time(window: Window | None, how: JoinType) -> set[tuple[Side, str | None]]:
    """The columns whose times are never behind the watermark in results."""
    if window is None or window.limits is None or window.on is None:
        return set()
    low, high = window.span
    found: set[tuple[Side, str | None]] = set()
    for side, least in ((Side.LEFT, low), (Side.RIGHT, -high)):
        alone = side in how.preserved and window.expiry(side) < 0  # emitted when it expires, slightly behind it
        if least >= 0 and not alone and window.on[side] == window.limits.late[side]:
            found.add((side, window.on[side]))
    return found


def _delays(on: Columns, inputs: tuple[DataFrame, DataFrame]) -> Watermarks:
    left, right = (_delay(frame, name) for frame, name in zip(inputs, on, strict=True))
    return left, right


def _delay(frame: DataFrame, name: str | None) -> int | None:
    """The delay in microseconds. None without a watermark, or without such a column, which planning refuses."""
    noted = [f.metadata[DELAY_MS] for f in frame.schema.fields if f.name == name and DELAY_MS in f.metadata]
    return 1000 * int(noted[0]) if noted else None
