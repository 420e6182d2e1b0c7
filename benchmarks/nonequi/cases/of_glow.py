"""glow's left join of points with overlapping regions, scaled from a billion by a million to ten million by one."""

from __future__ import annotations

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import intervals
from benchmarks.nonequi.question import Overlap, Pairs

GENOME, LONGEST = 3_000_000_000, 1_000


def generate(rows: int, rng: np.random.Generator) -> Tables:
    left = intervals("l", rng.integers(0, GENOME, rows), np.ones(rows, np.int64), rng)
    count = rows // 10
    return left, intervals("r", rng.integers(0, GENOME, count), rng.integers(1, LONGEST, count), rng)


QUESTION = Pairs((Overlap("l_s", "l_e", "r_s", "r_e"),), "left")
CASES = [
    Case("glow", "left join by overlap, 10M x 1M", generate, QUESTION, "glow, scaled", 10_000_000, bin_width=5_000)
]
