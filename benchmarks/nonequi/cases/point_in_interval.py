"""Points in intervals, five for each point: uniform, skewed points, and a mix of wide and narrow intervals."""

from __future__ import annotations

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import SPACING, intervals, positions, side
from benchmarks.nonequi.question import Pairs, Within

BLOCKS = 10_000  # blocks of the domain, with Zipf shares of the points
ZIPF = 1.3
WIDE = 20  # number of intervals with a tenth of the domain
LONGEST = 10_000  # maximum length of the others


def uniform(rows: int, rng: np.random.Generator) -> Tables:
    count = rows // 10
    right = intervals("r", positions(rows, rng, count), rng.integers(1, LONGEST, count), rng)
    return side("l", {"t": positions(rows, rng)}, rng), right


def zipf(rows: int, rng: np.random.Generator) -> Tables:
    block = rng.permutation(BLOCKS)[np.minimum(rng.zipf(ZIPF, rows), BLOCKS) - 1]
    width = max(1, SPACING * rows // BLOCKS)
    points = block * width + rng.integers(0, width, rows)
    return side("l", {"t": points}, rng), uniform(rows, rng)[1]


def mixed(rows: int, rng: np.random.Generator) -> Tables:
    count = rows // 10
    length = np.minimum(rng.lognormal(7, 1.5, count).astype(np.int64) + 1, SPACING * rows // 10)
    length[:WIDE] = SPACING * rows // 10
    right = intervals("r", positions(rows, rng, count), length, rng)
    return side("l", {"t": positions(rows, rng)}, rng), right


QUESTION = Pairs((Within("l_t", "r_s", "r_e"),))
CASES = [
    Case("point", "point in interval, uniform", uniform, QUESTION, bin_width=5_000),
    Case("point_zipf", "point in interval, Zipf", zipf, QUESTION, bin_width=5_000),
    Case("point_mixed", "point in interval, wide and narrow", mixed, QUESTION, bin_width=5_000),
]
