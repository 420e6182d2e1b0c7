"""Polars' benchmark of `join_where`, with the tables of pyjanitor: shorter duration, but more revenue?"""

from __future__ import annotations

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import side
from benchmarks.nonequi.question import Compare, Pairs

EAST, WEST = 50_000, 5_000
PER_TIME = 0.123


def generate(rows: int, rng: np.random.Generator) -> Tables:
    duration, time = rng.integers(1_000, 50_000, rows), rng.integers(1_000, 50_000, rows * WEST // EAST)
    cost = time * PER_TIME + rng.normal(0.0, 1.0, len(time))
    east = side("l", {"dur": duration, "scaled": 30 * duration, "rev": (duration * PER_TIME).astype(np.int32)}, rng)
    return east, side("r", {"time": time, "cost": cost.astype(np.int32)}, rng)


SOURCE = "Polars, `tests/benchmark/test_join_where.py`"
STRICT = (Compare("l_dur", "<", "r_time"), Compare("l_rev", ">", "r_cost"))
EQUAL_TOO = (Compare("l_dur", "<=", "r_time"), Compare("l_rev", ">=", "r_cost"))
CASES = [
    Case("east_west", "Polars: east and west", generate, Pairs(STRICT), SOURCE, EAST),
    Case("east_west_equal", "Polars: the same with equal values", generate, Pairs(EQUAL_TOO), SOURCE, EAST),
    Case(
        "east_west_one", "Polars: one inequality", generate, Pairs((Compare("l_scaled", "<", "r_time"),)), SOURCE, EAST
    ),
]
