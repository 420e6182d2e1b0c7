"""Three inequalities, five partners for each row; the third, on independent columns, halves the pairs of the others."""

from __future__ import annotations

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.two_inequalities import PARTNERS, TERMS, correlated
from benchmarks.nonequi.question import Compare, Pairs


def generate(rows: int, rng: np.random.Generator) -> Tables:
    left, right = (
        correlated(prefix, rows, 2 * PARTNERS, rng).append_column(f"{prefix}_c", [rng.random(rows)]) for prefix in "lr"
    )
    return left, right


CASES = [Case("inequalities_3", "three inequalities", generate, Pairs((*TERMS, Compare("l_c", "<", "r_c"))))]
