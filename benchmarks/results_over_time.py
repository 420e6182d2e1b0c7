"""Draws the picture in the README: results over time of a join of two servers that stall, and of Spark's own join.

Dovetail joins streams without an equality while they arrive, in little memory. Spark rejects such a stream join, so its
own join is a batch job that starts when the last row has arrived. `python -m benchmarks.results_over_time` runs both on
this machine as the demo does, compares the answers, and draws docs/images/results_over_time.svg.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console

from dovetail.demo.play import record
from dovetail.demo.scene import SceneMoment
from dovetail.demo.senders import Script
from dovetail.monitoring.formatting import short
from dovetail.monitoring.plot import nice_seconds, nice_values

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "results_over_time.svg"
# Each row has some hundred partners, enough to keep the join busy during a stall.
ON = "abs(l.paid_at - r.booked_at) <= 1200 AND l.amount <= r.amount"
ROWS = 16_000
FIRST = 1_500
BURSTS = ((5.0, 2.5), (5.0, 2.5), (5.0, 0.0))  # stalls are as long as two cores have work
MEMORY = "96KB"  # per cell; the two cells have a quarter of the bytes of both sides

Points = list[tuple[float, int]]  # second, results so far


class Outcome(NamedTuple):
    points: Points
    stalls: list[tuple[float, float]]  # start and end of spans without arrivals, with all earlier rows read by Spark
    sent: float  # when the last row was sent
    spark_s: float  # seconds of Spark's own join, started with all rows
    results: int


def write_script() -> Script:
    """Payments and bookings: more rows than in the demo, and both servers stall at the same time."""
    rng = np.random.default_rng(7)
    tables = {}
    for name, column in (("payments", "paid_at"), ("bookings", "booked_at")):
        rows = {column: rng.integers(0, 50_000, ROWS), "amount": rng.integers(1, 500, ROWS), "id": np.arange(ROWS)}
        tables[name] = pa.table(rows)
    return Script(tables, (BURSTS, BURSTS), FIRST, ON, MEMORY)


def measure() -> Outcome:
    scene = record(write_script(), Console())
    assert scene.rival.seconds is not None
    points = [(moment.elapsed, moment.results) for moment in scene.history if moment.phase != "complete"]
    points.append((scene.elapsed, scene.results))
    return Outcome(points, find_stalls(scene.history), scene.sent_s, scene.rival.seconds, scene.results)


def find_stalls(history: Sequence[SceneMoment]) -> list[tuple[float, float]]:
    """Stalls on the time axis of the picture: the senders' clocks stop until Spark has read what they sent."""
    runs = [(phase, [moment.elapsed for moment in run]) for phase, run in groupby(history, lambda m: m.phase)]
    return [(seconds[0], seconds[-1]) for phase, seconds in runs if phase == "silent"]


# The drawing. Coordinates are pixels.

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 56, 84
BLUE, GREY, STALL, INK, FAINT = "#1f6feb", "#6e7781", "#fff3d6", "#24292f", "#d8dee4"


def draw(outcome: Outcome) -> str:
    spark_end = outcome.sent + outcome.spark_s
    end, top = max(spark_end, outcome.points[-1][0]) * 1.04, outcome.results * 1.08

    def x(second: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * second / end

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top

    def text(px: float, py: float, words: str, fill: str = INK, anchor: str = "start", size: int = 13) -> str:
        style = f'fill="{fill}" text-anchor="{anchor}" font-size="{size}"'
        return f'<text x="{px:.0f}" y="{py:.0f}" {style}>{escape(words)}</text>'

    def path(points: Points, colour: str, dashes: str = "") -> str:
        steps = "".join(
            f"L{x(t):.1f} {y(before):.1f}L{x(t):.1f} {y(n):.1f}" for (_, before), (t, n) in pairwise(points)
        )
        start = f"M{x(points[0][0]):.1f} {y(points[0][1]):.1f}"
        return (
            f'<path d="{start}{steps}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dashes}"/>'
        )

    shapes = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    for first, last in outcome.stalls:
        begin, stop = x(first), x(last)
        size = f'width="{stop - begin:.1f}" height="{HEIGHT - TOP - BOTTOM}"'
        shapes.append(f'<rect x="{begin:.1f}" y="{TOP}" {size} fill="{STALL}"/>')
        shapes.append(text((begin + stop) / 2, TOP + 18, "both stall", "#8a6100", "middle", 12))
    for value in nice_values(top):
        shapes.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="{FAINT}"/>')
        shapes.append(text(LEFT - 8, y(value) + 4, short(value, trim=True), GREY, "end", 12))
    axis = HEIGHT - BOTTOM + 18
    shapes.extend(text(x(tick), axis, f"{tick:g} s", GREY, "middle", 12) for tick in nice_seconds(end))
    shapes.append(f'<path d="M{x(outcome.sent):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="{GREY}" stroke-dasharray="2 3"/>')
    shapes.append(text(x(outcome.sent) - 6, HEIGHT - BOTTOM - 10, "last row sent", GREY, "end", size=12))
    spark: Points = [(0.0, 0), (spark_end, outcome.results), (end, outcome.results)]
    shapes.append(path(spark, GREY, "6 4"))
    shapes.append(path([*outcome.points, (end, outcome.results)], BLUE))
    found = max(n for t, n in outcome.points if t <= outcome.sent)
    shapes.append(text(LEFT, 22, "Results found over time", INK, size=16))
    shapes.append(
        text(LEFT, 42, f"{ROWS:,} x {ROWS:,} rows from two servers, a band and an inequality, no equality", GREY)
    )
    early = f"Dovetail on Spark, while rows arrive: {found / outcome.results:.0%} found when the last row is sent"
    for py, words, colour, dashes in (
        (HEIGHT - 38, early, BLUE, ""),
        (HEIGHT - 16, "Spark's own join: refuses these streams, so it is a batch job afterwards", GREY, "6 4"),
    ):
        shapes.append(
            f'<path d="M{LEFT} {py - 4}h28" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dashes}"/>'
        )
        shapes.append(text(LEFT + 36, py, words))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def main() -> None:
    outcome = measure()
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(outcome))
    early = max(n for t, n in outcome.points if t <= outcome.sent) / outcome.results
    print(f"{outcome.results:,} results; last row sent after {outcome.sent:.1f} s, {early:.0%} found by then")
    print(f"complete: Dovetail {outcome.points[-1][0]:.1f} s, Spark's own {outcome.sent + outcome.spark_s:.1f} s")


if __name__ == "__main__":
    main()
