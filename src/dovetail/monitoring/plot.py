"""Draws plots over time as inline SVG.

A plot fills the width of the page, lines keep their width, and all text is HTML beside the SVG, so it is legible on
small and large screens. Coordinates run from 0 to 1000 both ways.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from dovetail.core.markup import Html, tag, together
from dovetail.monitoring.formatting import format_seconds, short
from dovetail.monitoring.snapshot import StateSpan

T = TypeVar("T")

UNITS = 1000
MOST_POINTS = 600  # per line; more would not be visible
HIGH = 0.93  # of the height: above it, a label on top of the line would not fit
LAST = 0.97  # of the width: from there on, a label would not fit
SLICES = 90  # number of hover areas
SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)

Points = Sequence[tuple[float, float]]  # second, value


def percent(share: float) -> str:
    return f"{100 * share:.3f}%"


class Frame(NamedTuple):
    """The ranges of a plot: seconds from 0 to `end`, values from 0 to `top`."""

    end: float
    top: float

    def x(self, second: float) -> float:
        return UNITS * min(1.0, max(0.0, second / self.end))

    def y(self, value: float) -> float:
        return UNITS * (1 - min(1.5, max(0.0, value / self.top)))


def frame(end: float, top: float) -> Frame:
    return Frame(max(end, 1e-3), max(top, 1.0))


# Shapes.


def line(frame: Frame, points: Points, class_: str) -> Html:
    return tag("path", d=_path(frame, points), class_=f"line {class_}") if points else Html()


def area(frame: Frame, points: Points, class_: str, lower: Points = ()) -> Html:
    """The area between the points and `lower`, or the x-axis."""
    if not points:
        return Html()
    below = list(lower) or [(points[0][0], 0.0), (points[-1][0], 0.0)]
    return tag("path", d=f"{_path(frame, points)}L{_path(frame, below[::-1])[1:]}Z", class_=f"area {class_}")


def bands(frame: Frame, spans: Sequence[StateSpan]) -> Html:
    """The states of the join, as background colours."""
    return together(
        *(
            tag(
                "rect",
                tag("title", str(band)),
                x=f"{frame.x(band.start):.1f}",
                width=f"{frame.x(band.end) - frame.x(band.start):.1f}",
                y=0,
                height=UNITS,
                class_=f"band {class_name(band.state)}",
            )
            for band in spans
        )
    )


def level(frame: Frame, value: float, class_: str) -> Html:
    """A horizontal line across the plot."""
    return line(frame, [(0.0, value), (frame.end, value)], class_)


def _path(frame: Frame, points: Points) -> str:
    return "M" + "L".join(f"{frame.x(second):.1f} {frame.y(value):.1f}" for second, value in thin(points))


def thin(points: Sequence[T], most: int = MOST_POINTS) -> Sequence[T]:
    """Reduce the number of points. Keeps the first and the last."""
    step = math.ceil(len(points) / most)
    return points if step <= 1 else [*points[:-1:step], points[-1]]


# The frame of the plot.


def plot(
    frame: Frame, shapes: Sequence[Html], says: str, *, marks: Sequence[Html] = (), strip: Html | None = None
) -> Html:
    """Shapes over a grid with axis labels. `says` is for screen readers."""
    values, times = nice_values(frame.top), nice_seconds(frame.end)
    grid = [tag("path", d=f"M0 {frame.y(value):.1f}H{UNITS}", class_="grid") for value in values]
    svg = tag(
        "svg",
        *grid,
        *shapes,
        viewBox=f"0 0 {UNITS} {UNITS}",
        preserveAspectRatio="none",
        role="img",
        aria_label=says,
    )
    labels = [
        tag(
            "span",
            short(value, trim=True),
            class_="y high" if value > HIGH * frame.top else "y",
            style=f"bottom:{percent(value / frame.top)}",
            aria_hidden="true",
        )
        for value in values
        if value
    ]
    return tag("div", tag("div", svg, *labels, *marks, class_="plot"), strip, time_axis(frame, times), class_="chart")


def time_axis(frame: Frame, times: Sequence[float]) -> Html:
    labels = []
    for number, second in enumerate(times):
        place = second / frame.end
        class_ = "x" + (" odd" if number % 2 else "") + (" last" if place > LAST else "")
        labels.append(tag("span", format_seconds(second), class_=class_, style=f"left:{percent(place)}"))
    return tag("div", *labels, class_="times", aria_hidden="true")


def mark(frame: Frame, second: float, value: float, words: str, class_: str) -> Html:
    """A dot with a label."""
    place = f"left:{percent(frame.x(second) / UNITS)};bottom:{percent(1 - frame.y(value) / UNITS)}"
    side = "left" if second > frame.end / 2 else "right"
    return tag("span", tag("b", words), class_=f"mark {class_} {side}", style=place)


def slices(frame: Frame, told: Sequence[tuple[float, Sequence[str]]]) -> Html:
    """Tooltips for hover areas: the figures of each moment."""
    if not told:
        return Html()
    chosen = thin(told, SLICES)
    ends = [*((one + other) / 2 for (one, _), (other, _) in pairwise(chosen)), frame.end]
    starts = [0.0, *ends[:-1]]
    return tag(
        "div",
        *(
            tag(
                "span",
                tag("b", *(tag("span", line) for line in lines), class_="left" if second > frame.end / 2 else "right"),
                style=f"left:{percent(start / frame.end)};width:{percent((end - start) / frame.end)}",
            )
            for (second, lines), start, end in zip(chosen, starts, ends, strict=True)
        ),
        class_="slices",
        aria_hidden="true",
    )


def track(frame: Frame, spans: Sequence[StateSpan], says: str) -> Html:
    """States over time, as a bar of coloured spans."""
    return tag(
        "div",
        *(
            tag(
                "i",
                class_=class_name(band.state),
                style=f"left:{percent(band.start / frame.end)};width:{percent((band.end - band.start) / frame.end)}",
                title=str(band),
            )
            for band in spans
        ),
        class_="track",
        role="img",
        aria_label=says,
    )


def class_name(state: str) -> str:
    """The CSS class of a phase or state. Only letters are kept, since it may come from a file."""
    return f"is-{state}" if state.isalpha() and state.isascii() else "is-other"


# Axis labels.


def nice_values(top: float, about: int = 4) -> list[float]:
    """Round numbers from 0 up to the top."""
    rough = top / about
    power = 10 ** math.floor(math.log10(rough))
    step = max(1.0, next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough))
    return [step * n for n in range(int(top / step) + 1)]


def nice_seconds(end: float, most: int = 8) -> list[float]:
    step = next((step for step in SECONDS if end / step <= most), 86400 * math.ceil(end / most / 86400))
    return [step * n for n in range(int(end / step) + 1)]
