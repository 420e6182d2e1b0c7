"""Overlap of intervals, most of which have no partner: left join, and anti join."""

from __future__ import annotations

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import intervals, positions
from benchmarks.nonequi.question import Overlap, Pairs

LONGEST = 50


def generate(rows: int, rng: np.random.Generator) -> Tables:
    left = intervals("l", positions(rows, rng), rng.integers(1, LONGEST, rows), rng)
    return left, intervals("r", positions(rows, rng), rng.integers(1, LONGEST, rows), rng)


TERMS = (Overlap("l_s", "l_e", "r_s", "r_e"),)
CASES = [
    Case("overlap_left", "left join by overlap", generate, Pairs(TERMS, "left"), bin_width=10 * LONGEST),
    Case("overlap_anti", "anti join by overlap", generate, Pairs(TERMS, "left_anti"), bin_width=10 * LONGEST),
]
