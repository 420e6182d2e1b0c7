"""Two inequalities on correlated columns, five partners for each row: who earns more and pays less?"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import side
from benchmarks.nonequi.question import Compare, Pairs

TERMS = (Compare("l_a", "<", "r_a"), Compare("l_b", ">", "r_b"))
PARTNERS = 5


def generate(rows: int, rng: np.random.Generator) -> Tables:
    return correlated("l", rows, PARTNERS, rng), correlated("r", rows, PARTNERS, rng)


def correlated(prefix: str, rows: int, partners: int, rng: np.random.Generator) -> pa.Table:
    """b is a with enough noise to give each row this many partners."""
    a = rng.random(rows)
    return side(prefix, {"a": a, "b": a + 6 * partners / rows * rng.random(rows)}, rng)


CASES = [Case("inequalities_2", "two inequalities", generate, Pairs(TERMS))]
