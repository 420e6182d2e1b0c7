"""Plots of findings as plain SVG: lines with points, axes, a legend. They need only a browser."""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.papers.verdicts import Plot
from dovetail.core.markup import Html, tag, together

WIDTH, HEIGHT = 520, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 26, 40
LEGEND = 15  # height of a line of the legend
MOST_MARKED = 25  # lines with more points are drawn as a curve
SHADE = "#fff0cc"
COLOURS = ("#1f6fb2", "#d2691e", "#3a8f4d", "#a03a6e", "#7a6a1e", "#5b5b5b", "#148f8f", "#b23a3a")


class _Axis:
    """Maps values to positions on the page."""

    def __init__(self, values: list[float], start: float, end: float, *, log: bool = False) -> None:
        self._log = log
        positive = [value for value in values if value > 0]
        self.low = min(positive, default=1.0) if log else min(0.0, *values)
        self.high = max(values) or 1.0
        if self.high == self.low:
            self.high = self.low + 1.0
        self._start, self._end = start, end

    def place(self, value: float) -> float:
        low, high = self._scaled(self.low), self._scaled(self.high)
        return self._start + (self._scaled(max(value, self.low)) - low) / (high - low) * (self._end - self._start)

    def ticks(self) -> list[float]:
        if not self._log:
            return _round_values(self.high)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        return [10.0**decade for decade in decades if self.low <= 10.0**decade <= self.high] or [self.low, self.high]

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self._log else value


def draw(plot: Plot) -> Html:
    """An svg element."""
    points = [point for line in plot.lines.values() for point in line]
    if not points:
        return Html("")
    bottom = HEIGHT - BOTTOM
    x_axis = _Axis([x for x, _ in points], LEFT, WIDTH - RIGHT)
    y_axis = _Axis([y for _, y in points], bottom, TOP, log=plot.log_y)
    height = HEIGHT + LEGEND * (len(plot.lines) + bool(plot.shaded))
    return tag(
        "svg",
        tag("title", plot.figure),
        tag("rect", width=WIDTH, height=height, fill="#fff"),
        _text(LEFT, 16, f"{plot.figure}; {plot.y}{' (logarithmic)' if plot.log_y else ''}"),
        *_shades(plot, x_axis, bottom),
        *_axes(x_axis, y_axis, bottom),
        _text((LEFT + WIDTH) / 2, HEIGHT - 8, plot.x, anchor="middle"),
        *_lines(plot, x_axis, y_axis),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height}",
        width=WIDTH,
        height=height,
        role="img",
        font_family="sans-serif",
        font_size=11,
    )


def _shades(plot: Plot, x_axis: _Axis, bottom: float) -> Iterator[Html]:
    for start, end in plot.shaded:
        x = round(x_axis.place(start), 1)
        yield tag("rect", x=x, y=TOP, width=round(x_axis.place(end) - x, 1), height=round(bottom - TOP, 1), fill=SHADE)
    if plot.shaded:
        y = HEIGHT + LEGEND * len(plot.lines) + 4
        yield tag("rect", x=LEFT, y=y - 9, width=20, height=10, fill=SHADE)
        yield _text(LEFT + 26, y, plot.shaded_as)


def _axes(x_axis: _Axis, y_axis: _Axis, bottom: float) -> Iterator[Html]:
    for value in y_axis.ticks():
        y = round(y_axis.place(value), 1)
        yield tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, stroke="#ddd")
        yield _text(LEFT - 6, y + 4, f"{value:g}", anchor="end")
    for value in x_axis.ticks():
        yield _text(x_axis.place(value), bottom + 15, f"{value:g}", anchor="middle")
    yield tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, stroke="#333")


def _lines(plot: Plot, x_axis: _Axis, y_axis: _Axis) -> Iterator[Html]:
    for number, (name, line) in enumerate(plot.lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(round(x_axis.place(x), 1), round(y_axis.place(y), 1)) for x, y in line]
        path = " ".join(f"{x},{y}" for x, y in places)
        dashed = "5 4" if "print" in name or "bound" in name else None
        yield tag("polyline", points=path, fill="none", stroke=colour, stroke_width=2, stroke_dasharray=dashed)
        if len(places) <= MOST_MARKED:
            yield together(*(tag("circle", cx=x, cy=y, r=3, fill=colour) for x, y in places))
        y = HEIGHT + LEGEND * number + 4
        yield tag(
            "line", x1=LEFT, x2=LEFT + 20, y1=y - 4, y2=y - 4, stroke=colour, stroke_width=2, stroke_dasharray=dashed
        )
        yield _text(LEFT + 26, y, name)


def _round_values(top: float, about: int = 4) -> list[float]:
    """Round values from 0 to the top."""
    power = 10.0 ** math.floor(math.log10(top / about))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= top / about)
    return [step * n for n in range(int(top / step) + 1)]


def _text(x: float, y: float, words: str, anchor: str | None = None) -> Html:
    return tag("text", words, x=round(x, 1), y=round(y, 1), text_anchor=anchor, fill="#222")
