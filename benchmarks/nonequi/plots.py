"""Plots CPU seconds: a line for each case, a dot for each contender, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

WIDTH, LINE, TOP, LEFT, RIGHT = 900, 26, 58, 250, 30
INK, FAINT, GREY = "#24292f", "#d8dee4", "#6e7781"
COLOURS = {
    "dovetail": "#1f6feb",
    "duckdb": "#d4a106",
    "polars": "#a0522d",
    "datafusion": "#e36209",
    "chdb": "#cf222e",
    "pandas": "#8250df",
    "scipy": "#1b7c83",
    "sedonadb": "#bf3989",
    "polars_bio": "#4d7c0f",
    "bioframe": "#57606a",
    "pyranges1": "#7d8590",
    "dovetail_spark": "#1f6feb",
    "spark": "#6e7781",
    "spark_bins": "#24292f",
    "tempo": "#953800",
}
HOLLOW = ("dovetail_spark", "spark", "spark_bins", "tempo")  # on Spark


def draw(title: str, points: Mapping[str, Mapping[str, float]], names: Mapping[str, str]) -> str:
    """`points` are seconds by case and contender."""
    taken = [value for line in points.values() for value in line.values()] or [1.0]
    low, high = math.floor(math.log10(max(min(taken), 1e-4))), math.ceil(math.log10(max(*taken, 1e-3)))
    shown = [name for name in names if any(name in line for line in points.values())]
    bottom = TOP + LINE * len(points)
    legend_lines = -(-len(shown) // 5)
    height = bottom + 40 + 22 * legend_lines

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(max(value, 1e-4)) - low) / max(high - low, 1)

    shapes = [f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>', _text(16, 26, title, size=16)]
    for power in range(low, high + 1):
        at = x(10.0**power)
        shapes.append(f'<path d="M{at:.1f} {TOP - 8}V{bottom}" stroke="{FAINT}"/>')
        shapes.append(_text(at, bottom + 16, f"{10.0**power:g} s", GREY, "middle", 12))
    for number, (case, line) in enumerate(points.items()):
        y = TOP + LINE * number + LINE / 2
        shapes.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{FAINT}" stroke-dasharray="2 3"/>')
        shapes.append(_text(LEFT - 10, y + 4, case, anchor="end", size=13))
        # Ours are drawn last, on top of the others.
        order = sorted(line, key=lambda name: name in ("dovetail", "dovetail_spark"))
        shapes += [_dot(x(line[name]), y, name, f"{names[name]}: {line[name]:.3g} s") for name in order]
    for number, name in enumerate(shown):
        px, py = 24 + (number % 5) * 175, bottom + 42 + 22 * (number // 5)
        shapes += [_dot(px, py, name, names[name]), _text(px + 12, py + 4, names[name], size=13)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def _dot(x: float, y: float, name: str, tip: str) -> str:
    colour = COLOURS[name]
    fill = "#ffffff" if name in HOLLOW else colour
    radius = 7 if name in ("dovetail", "dovetail_spark") else 5
    style = f'fill="{fill}" stroke="{colour}" stroke-width="2"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {style}><title>{escape(tip)}</title></circle>'


def _text(x: float, y: float, words: str, fill: str = INK, anchor: str = "start", size: int = 13) -> str:
    style = f'fill="{fill}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text x="{x:.0f}" y="{y:.0f}" {style}>{escape(words)}</text>'
