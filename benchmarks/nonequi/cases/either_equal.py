"""OR of two equalities: four partners for each row, two by each equality."""

from __future__ import annotations

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import side
from benchmarks.nonequi.question import EitherEqual, Pairs


def generate(rows: int, rng: np.random.Generator) -> Tables:
    keys = rows // 2
    left, right = (
        side(prefix, {"a": rng.integers(0, keys, rows), "b": rng.integers(0, keys, rows)}, rng) for prefix in "lr"
    )
    return left, right


QUESTION = Pairs((EitherEqual((("l_a", "r_a"), ("l_b", "r_b"))),))
CASES = [Case("or_equal", "OR of two equalities", generate, QUESTION)]
