"""Windows over streams: which rows can still match.

A pair is a result if and only if both rows are in the window when the later one arrives. The order of arrival is fixed
once. The slide does not affect results: it is the number of rows that expire together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Literal as OneOf
from typing import NamedTuple

from dovetail.arguments import check_names
from dovetail.errors import InputError

Scope = OneOf["combined", "per_stream"]
Watermarks = tuple[int | None, int | None]
"""The watermark delay of each side, in microseconds. None: the input has no watermark."""

UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
DURATION = re.compile(r"\s*(\d+)\s*([a-z]+?)s?\s*", re.IGNORECASE)
SLIDES = 10  # per window, if no slide is given


UNBOUNDED = 2**61  # microseconds: longer than any time difference


class Limits(NamedTuple):
    """The limits on event time that follow from a condition, in microseconds."""

    span: tuple[int, int]  # the smallest and the largest time difference, left - right
    expiry: tuple[int, int]  # by side: a row expires when its time is at the watermark + this
    late: tuple[str | None, str | None]  # by side: the column with the watermark; rows at or before it are late


@dataclass(frozen=True, repr=False)  # no slots: derived values are cached
class Window:
    """The last `size` rows, or the last `size` microseconds of event time."""

    size: int
    slide: int
    on: tuple[str, str] | None = None  # event time: a column of each side. None: the window counts rows
    scope: Scope = "combined"  # count the rows of both streams together, or of each separately
    delay: int = 0  # event time: how far a row may be behind the newest one before it is late
    delay_given: bool = False  # else `delay` is a slide, and a watermark replaces it
    watermarks: Watermarks = (None, None)  # event time: the delay of each input's watermark
    idle: int | None = None  # event time: after this long without a row, time follows the clock. None: it waits
    limits: Limits | None = None  # of the condition, if it is the only window. Else `size` is the window

    def __repr__(self) -> str:
        return f"<Window of {self.text}>"

    @cached_property
    def by_time(self) -> bool:
        return self.on is not None

    @cached_property
    def by_own(self) -> bool:
        """Whether the rows of each stream are counted separately."""
        return self.scope == "per_stream" and not self.by_time

    @cached_property
    def by_watermark(self) -> bool:
        """Whether event time is Spark's own watermark: rows are late and expire as in Spark's joins."""
        if self.limits is not None:
            return True
        return self.by_time and self.idle is None and None not in self.watermarks

    @cached_property
    def span(self) -> tuple[int, int]:
        """The smallest and the largest distance of two rows in the window, left - right."""
        return (1 - self.size, self.size - 1) if self.limits is None else self.limits.span

    def expiry(self, side: int) -> int:
        """Rows of a side expire when they are this far from the position of the next row, or further back."""
        return 1 - self.size if self.limits is None else self.limits.expiry[side]

    def late_column(self, side: int) -> str | None:
        """The column that tells whether a row of a side is late."""
        if self.limits is not None:
            return self.limits.late[side]
        return None if self.on is None else self.on[side]

    @property
    def text(self) -> str:
        if self.limits is not None:
            return "what the condition and the watermarks leave of them"
        if self.on is None:
            return f"{self.size:,} rows {'of both streams' if self.scope == 'combined' else 'of each stream'}"
        return f"{timedelta(microseconds=self.size)} of l.{self.on[0]} and r.{self.on[1]}"

    @property
    def delay_lines(self) -> tuple[str, ...]:
        """Plan lines: how late rows may be, and what determines it."""
        if self.on is None:
            return ()
        if self.limits is not None:
            return tuple(
                f"{timedelta(microseconds=delay)} for {alias}.{name}: its watermark"
                for alias, name, delay in zip("lr", self.limits.late, self.watermarks, strict=True)
                if delay is not None
            )
        if self.watermarks == (None, None):
            why = "as given" if self.delay_given else "a slide, because no input has a watermark"
            return (f"{timedelta(microseconds=self.delay)} behind the newest row of both inputs: {why}",)
        lines = []
        for alias, name, watermark in zip("lr", self.on, self.watermarks, strict=True):
            if watermark is None:
                lines.append(f"{timedelta(microseconds=self.delay)} for {alias}.{name}: a slide, it has no watermark")
            else:
                lines.append(f"{timedelta(microseconds=watermark)} for {alias}.{name}: its watermark")
        return tuple(lines)

    @property
    def state_lines(self) -> tuple[str, ...]:
        """Plan lines: how long rows are kept, if the condition determines it."""
        if self.limits is None or self.on is None:
            return ()
        lines = []
        for alias, name, expiry in zip("lr", self.on, self.limits.expiry, strict=True):
            if expiry <= -UNBOUNDED:
                lines.append(f"rows of {alias} are never removed: no watermark of the other input bounds their time")
            else:
                ahead = "-" if expiry > 0 else "+"
                until = f"{alias}.{name} {ahead} {timedelta(microseconds=abs(expiry))}" if expiry else f"{alias}.{name}"
                lines.append(f"rows of {alias} are kept until the watermark reaches {until}")
        return tuple(lines)

    def with_watermarks(self, watermarks: Watermarks) -> Window:
        """The window with the delays of the inputs' watermarks, unless it has a delay of its own."""
        return self if self.delay_given or not self.by_time else replace(self, watermarks=watermarks)

    def horizon(self, newest: tuple[int, int]) -> int:
        """The event time before which rows are late, computed from the newest one of each input: the smaller of two.

        An input with a watermark uses its own rows, as in Spark. One without uses the rows of both.
        """
        return min(
            max(newest) - self.delay if watermark is None else own - watermark
            for own, watermark in zip(newest, self.watermarks, strict=True)
        )


@check_names
def window(
    *,
    rows: int | None = None,
    time: str | timedelta | None = None,
    slide: int | str | timedelta | None = None,
    on: str | tuple[str, str] | None = None,
    scope: Scope = "combined",
    delay: str | timedelta | None = None,
    idle: str | timedelta | None = None,
) -> Window:
    """A window for joins of streams: only rows within it are joined with each other.

    Durations are timedeltas or text such as "10 minutes".

    Args:
        rows: How many of the latest rows are kept.
        time: Or how much event time is kept, up to the newest row.
        slide: Rows expire in slides, a whole one at a time; by default a tenth of the window.
        on: The column with the event time, or one of each side: "ts", ("sent", "received"). For `time` only.
        scope: Count rows of both streams together ("combined"), or of each separately ("per_stream").
        delay: A row that is further behind the newest one of earlier micro-batches is late. By default the delay of
            the inputs' watermarks, or a slide where they have none.
        idle: By default event time does not advance while the inputs are idle. With `idle`, it follows the clock after
            that time, so rows without a partner are emitted without further input. Such a query does not end by itself,
            not even with trigger(availableNow=True).

    Returns:
        The window, for `dovetail.join` and `dovetail.aggregate`.

    Example:
        >>> import dovetail
        >>> dovetail.window(rows=1_000_000)
        <Window of 1,000,000 rows of both streams>
        >>> dovetail.window(time="10 minutes", on="ts", delay="30 seconds")
        <Window of 0:10:00 of l.ts and r.ts>
    """
    if (rows is None) == (time is None):
        raise InputError("a window is of rows or of time: give either rows=… or time=….")
    if scope not in ("combined", "per_stream"):
        raise InputError(f"scope is 'combined' or 'per_stream'; got {scope!r}.")
    if time is not None:
        if on is None:
            raise InputError("a window of time needs the column with the event time: on='ts'.")
        size = microseconds(time)
        given = None if slide is None else microseconds(slide)
        hop = _slide(given, size)
        wait = hop if delay is None else microseconds(delay, least=0)
        pause = None if idle is None else microseconds(idle)
        columns = (on, on) if isinstance(on, str) else (on[0], on[1])
        return Window(size, hop, columns, delay=wait, delay_given=delay is not None, idle=pause)
    if idle is not None:
        raise InputError("idle= applies to windows of time only; rows are counted as they arrive.")
    if delay is not None:
        raise InputError("delay= applies to windows of time only; rows are counted as they arrive.")
    if on is not None:
        raise InputError("on= applies to windows of time only; rows are counted as they arrive.")
    return Window(_whole("rows", rows), _slide(None if slide is None else _whole("slide", slide), rows), None, scope)


def _slide(given: int | None, size: int | None) -> int:
    assert size is not None
    if given is not None and given > size:
        raise InputError(f"the slide ({given:,}) is longer than the window ({size:,}).")
    return given if given is not None else max(1, size // SLIDES)


def _whole(name: str, value: object) -> int:
    if type(value) is not int or value < 1:
        raise InputError(f"{name} must be a positive number of rows; got {value!r}.")
    return value


def microseconds(duration: object, least: int = 1) -> int:
    """A timedelta, or text such as "10 minutes", in microseconds."""
    if isinstance(duration, timedelta):
        length = duration // timedelta(microseconds=1)
    else:
        found = DURATION.fullmatch(duration) if isinstance(duration, str) else None
        unit = None if found is None else UNITS.get(found[2].lower())
        if found is None or unit is None:
            raise InputError(f"a duration is a timedelta or text such as '10 minutes'; got {duration!r}.")
        length = int(found[1]) * unit
    if length < least:
        raise InputError(f"a window must be longer than 0; got {duration!r}.")
    return length
