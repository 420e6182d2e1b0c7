"""As-of joins of rows sorted by time: with 50 keys, with a key per ten rows, and without keys."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import SPACING, positions, side
from benchmarks.nonequi.question import AsOf


def generate(rows: int, rng: np.random.Generator, keys: int | None) -> Tables:
    """Times of the right table are unique, so that there is one answer."""
    times = np.sort(positions(rows, rng)), np.arange(rows) * SPACING + rng.integers(0, SPACING, rows)
    keys = keys or rows // 10
    left, right = (
        side(prefix, {"t": time, "k": rng.integers(0, keys, rows)}, rng)
        for prefix, time in zip("lr", times, strict=True)
    )
    return left, right


BY_KEY = AsOf("l_t", "r_t", ("l_k", "r_k"))
CASES = [
    Case("asof_few", "as-of, 50 keys", partial(generate, keys=50), BY_KEY),
    Case("asof_many", "as-of, many keys", partial(generate, keys=None), BY_KEY),
    Case("asof_none", "as-of, no key", partial(generate, keys=1), AsOf("l_t", "r_t")),
]
