"""Overlap of intervals, five partners for each interval."""

from __future__ import annotations

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import intervals, positions
from benchmarks.nonequi.question import Overlap, Pairs

LONGEST = 500


def generate(rows: int, rng: np.random.Generator) -> Tables:
    left = intervals("l", positions(rows, rng), rng.integers(1, LONGEST, rows), rng)
    return left, intervals("r", positions(rows, rng), rng.integers(1, LONGEST, rows), rng)


CASES = [
    Case("overlap", "overlap of intervals", generate, Pairs((Overlap("l_s", "l_e", "r_s", "r_e"),)), bin_width=LONGEST)
]
