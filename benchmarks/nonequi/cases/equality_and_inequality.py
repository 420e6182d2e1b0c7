"""An equality and an inequality, five partners for each row: with ten keys, and with a key per ten rows."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import side
from benchmarks.nonequi.question import Compare, Pairs

PARTNERS = 5


def generate(rows: int, rng: np.random.Generator, keys: int | None) -> Tables:
    """Right values are small enough to give each row this many partners."""
    keys = keys or rows // 10
    left = side("l", {"k": rng.integers(0, keys, rows), "w": rng.random(rows)}, rng)
    small = rng.random(rows) * min(1.0, 2 * PARTNERS * keys / rows)
    return left, side("r", {"k": rng.integers(0, keys, rows), "w": small}, rng)


QUESTION = Pairs((Compare("l_k", "=", "r_k"), Compare("l_w", "<", "r_w")))
CASES = [
    Case("keys_few", "equality and inequality, 10 keys", partial(generate, keys=10), QUESTION),
    Case("keys_many", "equality and inequality, many keys", partial(generate, keys=None), QUESTION),
]
