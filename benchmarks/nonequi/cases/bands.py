"""Bands in one and two dimensions, five partners for each row."""

from __future__ import annotations

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import positions, side
from benchmarks.nonequi.question import Band, Pairs

PARTNERS = 5
REACH, REACH_2D = 250, 50


def line(rows: int, rng: np.random.Generator) -> Tables:
    return side("l", {"x": positions(rows, rng)}, rng), side("r", {"x": positions(rows, rng)}, rng)


def plane(rows: int, rng: np.random.Generator) -> Tables:
    edge = int(2 * REACH_2D * (rows / PARTNERS) ** 0.5)
    left, right = (
        side(prefix, {"x": rng.integers(0, edge, rows), "y": rng.integers(0, edge, rows)}, rng) for prefix in "lr"
    )
    return left, right


CASES = [
    Case("band", "band", line, Pairs((Band("l_x", "r_x", REACH),)), bin_width=2 * REACH),
    Case(
        "band_2d", "band of two attributes", plane, Pairs((Band("l_x", "r_x", REACH_2D), Band("l_y", "r_y", REACH_2D))),
        bin_width=2 * REACH_2D,
    ),
]  # fmt: skip
