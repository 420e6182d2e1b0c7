"""Shows a running join in a notebook: a bar and a chart of results over time, updated a few times a second.

    orders ⋈ payments   l.id = r.order_id                                       arriving
    ████████████████████░░░░░░░░░░░░░░░░░░░░░░  12,340 of about 45,000   27 %   0:03
    |             __----
    |        __---            results, and the estimate of the total with its bounds,
    |___-----                 over a background in the colour of the phase

The output is one SVG without style sheets, since a notebook has its own. Text has the colour of the surrounding page.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.markup import Html, tag, together
from dovetail.monitoring import plot
from dovetail.monitoring import snapshot as figures
from dovetail.monitoring.formatting import clock_time, format_seconds, format_share, short
from dovetail.monitoring.plot import Frame, Points
from dovetail.monitoring.snapshot import DONE, RunSnapshot

WIDTH, HEIGHT = 720, 318
LEFT, RIGHT = 52, 12  # of the plot, for the axis labels
TOP, BOTTOM = 104, 284
BAR_TOP, BAR_HEIGHT = 50, 10
FONT = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"
COLOURS = {
    "arriving": "#3a78d6",
    "reactive": "#e08a1e",
    "cleanup": "#22996b",
    "waiting": "#aab2ba",
    "preparing": "#aab2ba",
    "done": "#22996b",
    "stopped": "#b7791f",
    "failed": "#c8323c",
}
ESTIMATE = "#8250c8"
OTHER = "#aab2ba"


def run_html(snapshot: RunSnapshot, label: str) -> str:
    """The current state of a run. The label is for screen readers."""
    svg = tag(
        "svg",
        *_header(snapshot),
        *_bar(snapshot),
        *_plot(snapshot),
        xmlns="http://www.w3.org/2000/svg",
        width=WIDTH,
        height=HEIGHT,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=label,
        font_family=FONT,
        style="max-width:100%;height:auto",
    )
    note = figures.missing(snapshot)
    return str(together(svg, tag("p", note, role="alert") if note else None))


def _header(snapshot: RunSnapshot) -> list[Html]:
    state, heading = figures.state(snapshot), snapshot.heading
    said = figures.PHASES.get(state, "")
    return [
        _text(heading.title, 0, 15, size=15, weight=600),
        _text(_shorten(heading.on, 96), 0, 35, opacity=0.7),
        tag("circle", cx=WIDTH - 6, cy=10, r=5, fill=COLOURS.get(state, OTHER)),
        _text(state, WIDTH - 18, 15, anchor="end", weight=600, title=said),
    ]


def _bar(snapshot: RunSnapshot) -> list[Html]:
    """The share of the results that were found. If the total is unknown, only words, without a share."""
    share, colour = _share(snapshot), COLOURS.get(figures.state(snapshot), OTHER)
    ground = tag("rect", x=0, y=BAR_TOP, width=WIDTH, height=BAR_HEIGHT, rx=5, fill="currentColor", fill_opacity=0.12)
    full = tag("rect", x=0, y=BAR_TOP, width=f"{WIDTH * (share or 0):.1f}", height=BAR_HEIGHT, rx=5, fill=colour)
    return [ground, full, _text(" · ".join(_words(snapshot, share)), 0, BAR_TOP + 26, opacity=0.85)]


def _share(snapshot: RunSnapshot) -> float | None:
    if snapshot.outcome == DONE:
        return 1.0
    estimate = snapshot.latest.estimate
    return None if estimate is None else min(1.0, snapshot.latest.results / max(1.0, estimate.total))


def _words(snapshot: RunSnapshot, share: float | None) -> list[str]:
    latest = snapshot.latest
    words = [f"{latest.results:,} results"]
    if snapshot.running and latest.estimate is not None and share is not None:
        words = [f"{latest.results:,} of {figures.expectation(snapshot)}", format_share(share)]
    words.append(clock_time(snapshot.seconds) if snapshot.seconds >= 10 else f"{snapshot.seconds:.1f} s")
    if (early := figures.early_share(snapshot)) is not None:
        words.append(f"{format_share(early)} before the inputs had ended")
    if latest.spilled_rows:
        words.append(f"{latest.spilled_rows:,} rows on disk")
    return words


def _plot(snapshot: RunSnapshot) -> list[Html]:
    moments = snapshot.moments
    found = [(noted.second, float(noted.moment.results)) for noted in moments]
    estimates = [(noted.second, noted.moment.estimate) for noted in moments if noted.moment.estimate is not None]
    most = max([value for _, value in found] + [estimate.total for _, estimate in estimates], default=1.0)
    frame = plot.frame(snapshot.seconds, 1.08 * most)
    spans = figures.phase_bands(moments)
    shapes = [*_phases(frame, spans), *_grid(frame), _key(spans)]
    if len(estimates) > 1:
        highs = [(second, estimate.high) for second, estimate in estimates]
        lows = [(second, estimate.low) for second, estimate in estimates]
        shapes.append(_path(f"{_points(frame, highs)}L{_points(frame, lows[::-1])[1:]}Z", ESTIMATE, fill=0.2))
        shapes.append(_path(_points(frame, [(second, e.total) for second, e in estimates]), ESTIMATE))
        shapes.append(_text("estimate", WIDTH - RIGHT - 66, TOP - 6, size=11, colour=ESTIMATE, anchor="end"))
    shapes.append(_path(_points(frame, found), "currentColor", width=2.5))
    shapes.append(_text("results", WIDTH - RIGHT, TOP - 6, size=11, anchor="end"))
    return shapes


def _phases(frame: Frame, spans: Sequence[figures.StateSpan]) -> list[Html]:
    parts = []
    for span in spans:
        start, end = _x(frame, span.start), _x(frame, span.end)
        colour, width = COLOURS.get(span.state, OTHER), f"{end - start:.1f}"
        title = tag("title", str(span))
        box = {"x": f"{start:.1f}", "width": width, "fill": colour}
        parts.append(tag("rect", title, y=TOP, height=BOTTOM - TOP, fill_opacity=0.12, **box))
        parts.append(tag("rect", y=BOTTOM, height=4, **box))
    return parts


def _key(spans: Sequence[figures.StateSpan]) -> Html:
    """The legend: phases and their colours."""
    present = [phase for phase in figures.PHASES if any(span.state == phase for span in spans)]
    words = [tag("tspan", f"{phase}  ", fill=COLOURS[phase], style="white-space:pre") for phase in present]
    return tag("text", *words, x=LEFT, y=TOP - 6, font_size=11, font_weight=600)


def _grid(frame: Frame) -> list[Html]:
    parts = []
    for value in plot.nice_values(frame.top):
        y = _y(frame, value)
        parts.append(_path(f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}", "currentColor", width=1, opacity=0.15))
        parts.append(_text(short(value, trim=True), LEFT - 8, y + 4, size=11, anchor="end", opacity=0.7))
    times = [(format_seconds(second), _x(frame, second)) for second in plot.nice_seconds(frame.end)]
    return parts + [_text(words, x, BOTTOM + 20, size=11, anchor="middle", opacity=0.7) for words, x in times]


def _x(frame: Frame, second: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * frame.x(second) / plot.UNITS


def _y(frame: Frame, value: float) -> float:
    return TOP + (BOTTOM - TOP) * max(0.0, frame.y(value)) / plot.UNITS


def _points(frame: Frame, points: Points) -> str:
    return "M" + "L".join(f"{_x(frame, second):.1f} {_y(frame, value):.1f}" for second, value in plot.thin(points, 300))


def _path(d: str, colour: str, *, width: float = 1.5, fill: float = 0.0, opacity: float = 1.0) -> Html:
    if fill:
        return tag("path", d=d, fill=colour, fill_opacity=fill)
    return tag("path", d=d, fill="none", stroke=colour, stroke_width=width, stroke_opacity=opacity)


def _text(
    words: str,
    x: float,
    y: float,
    *,
    size: int = 13,
    weight: int = 400,
    anchor: str = "start",
    opacity: float = 1.0,
    colour: str = "currentColor",
    title: str = "",
) -> Html:
    return tag(
        "text",
        tag("title", title) if title else None,
        words,
        x=f"{x:.1f}",
        y=f"{y:.1f}",
        font_size=size,
        font_weight=weight,
        text_anchor=anchor,
        opacity=opacity,
        fill=colour,
    )


def _shorten(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"
