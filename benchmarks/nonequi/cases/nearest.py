"""The nearest point in a plane, and the nearest five."""

from __future__ import annotations

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import side
from benchmarks.nonequi.question import Nearest


def generate(rows: int, rng: np.random.Generator) -> Tables:
    left, right = (side(prefix, {"x": rng.random(rows), "y": rng.random(rows)}, rng) for prefix in "lr")
    return left, right


CASES = [
    Case(f"nearest_{k}", f"nearest points, k = {k}", generate, Nearest(("l_x", "l_y"), ("r_x", "r_y"), k))
    for k in (1, 5)
]
