"""Draws a plan for notebooks: inputs, routing, join and result.

    +---+
    | l |--+   +--------+   +----------+   +--------+
    +---+  +-->| router |-->| operator |-->| result |      and below it every decision with its reason
    | r |--+   +--------+   +----------+   +--------+
    +---+

Lines and text take the colour of the page, so it can be light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.core.markup import Html, tag

HEIGHT = 50  # of a box
NARROWEST, WIDEST = 120, 400  # of boxes, which are as wide as their text
PADDING = 12
GAP, SPACE = 44, 14  # between columns, and between inputs
TITLE, SMALL = 14, 12  # sizes of fonts
LETTER = 0.6  # the width of a letter, about, as a share of the font size
FONT = "font-family:system-ui,-apple-system,'Segoe UI',sans-serif"
FILLS = {"input": "#3a78d6", "router": "#8250c8", "operator": "#e08a1e", "result": "#22996b"}


class Box(NamedTuple):
    kind: str
    title: str
    below: str
    more: str = ""  # the tooltip

    @property
    def width(self) -> float:
        needed = LETTER * max(TITLE * len(self.title), SMALL * len(self.below)) + 2 * PADDING
        return min(WIDEST, max(NARROWEST, round(needed)))


def draw(inputs: Sequence[Box], stages: Sequence[Box], decisions: Sequence[tuple[str, str]], label: str) -> str:
    """The drawing, and a line for each decision."""
    cell = "text-align:left;vertical-align:top;padding:1px 14px 1px 0;background:none"
    rows = [
        tag("tr", tag("td", name, style=f"{cell};opacity:.65"), tag("td", text, style=cell)) for name, text in decisions
    ]
    table = tag("table", tag("tbody", *rows), style="border:0;margin:6px 0 0;font-size:13px")
    return str(tag("div", _svg(inputs, stages, label), table, style=f"{FONT};overflow-x:auto"))


def _svg(inputs: Sequence[Box], stages: Sequence[Box], label: str) -> Html:
    height = len(inputs) * (HEIGHT + SPACE) - SPACE
    right = max(box.width for box in inputs)
    middle = height / 2
    parts = []
    for number, box in enumerate(inputs):
        top = number * (HEIGHT + SPACE)
        parts += [_draw(box, 0, top, right), _line(right, top + HEIGHT / 2, middle)]
    for number, box in enumerate(stages, 1):
        left = right + GAP
        right = left + box.width
        parts += [_arrow(left, middle), _draw(box, left, middle - HEIGHT / 2, box.width)]
        if number < len(stages):
            parts.append(tag("path", d=f"M{right:g} {middle:g}h{GAP - 6}", **_STROKE))
    width = right
    return tag(
        "svg",
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        width=f"{width + 2:g}",
        height=height + 2,
        viewBox=f"-1 -1 {width + 2:g} {height + 2:g}",
        role="img",
        aria_label=label,
        style="max-width:100%;height:auto",
    )


_STROKE: dict[str, str | float | None] = {
    "fill": "none",
    "stroke": "currentColor",
    "stroke_opacity": 0.45,
    "stroke_width": 1.5,
}


def _line(left: float, start: float, middle: float) -> Html:
    """A line from an input to the point where the inputs meet."""
    curve = f"{left + GAP / 2:g} {start:g} {left + GAP / 2 - 4:g} {middle:g} {left + GAP - 6:g} {middle:g}"
    return tag("path", d=f"M{left:g} {start:g}C{curve}", **_STROKE)


def _arrow(left: float, middle: float) -> Html:
    return tag(
        "path",
        d=f"M{left - 8:g} {middle - 4:g}L{left - 1:g} {middle:g}L{left - 8:g} {middle + 4:g}z",
        fill="currentColor",
    )


def _draw(box: Box, left: float, top: float, width: float) -> Html:
    colour = FILLS[box.kind]
    frame = tag(
        "rect",
        x=f"{left:g}",
        y=f"{top:g}",
        width=f"{width:g}",
        height=HEIGHT,
        rx=7,
        fill=colour,
        fill_opacity=0.12,
        stroke=colour,
        stroke_width=1.5,
    )
    return tag(
        "g",
        tag("title", box.more or f"{box.title}: {box.below}"),
        frame,
        _text(box.title, left, top + 21, font_size=TITLE, font_weight=600),
        _text(box.below, left, top + 38, font_size=SMALL, opacity=0.75),
    )


def _text(words: str, left: float, base: float, *, font_size: int, **style: float) -> Html:
    most = int((WIDEST - 2 * PADDING) / (LETTER * font_size))
    shown = words if len(words) <= most else words[: most - 1] + "…"
    return tag("text", shown, x=f"{left + PADDING:g}", y=f"{base:g}", font_size=font_size, fill="currentColor", **style)
