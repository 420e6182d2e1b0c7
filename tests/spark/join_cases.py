"""Conditions of every class over random rows, and the result of each join type for given pairs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

CONDITIONS = {
    "hash": "l.k = r.k",
    "heavy": "l.h = r.h AND l.x < r.x - 40",
    "one_inequality": "l.x > r.x + 45",
    "two_inequalities": "l.x < r.x AND l.y > r.y + 30 AND l.id <> r.id",
    "text": "l.s < r.s AND l.x > r.x + 20",
    "band": "abs(l.x - r.x) <= 0.5",
    "two_bands": "l.x BETWEEN r.x - 2 AND r.x + 1 AND abs(l.y - r.y) < 2",
    "overlap": "l.start_at <= r.end_at AND l.end_at > r.start_at",
    "rectangles": "l.start_at < r.end_at AND l.end_at > r.start_at AND l.ymin <= r.ymax AND l.ymax >= r.ymin",
    "distance": "sqrt(pow(l.x - r.x, 2) + pow(l.y - r.y, 2)) <= 2",
    "unequal": "l.g != r.g",
    "nested_loop": "l.k = r.k OR l.x + r.x < -30",
    "union": "l.k = r.k AND l.y > 0 OR abs(l.x - r.x) <= 0.1",
    "null_safe": "l.k <=> r.k AND l.y < 0",
    "union_checked": "(l.k = r.k OR l.s = r.s OR l.x > r.x + 45) AND l.x * r.y > 10",
    "spark_only": "levenshtein(l.s, r.s) < 2 AND l.x > r.x",
}


def random_rows(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(0, 20, rows), rng.normal(0, 20, rows)
    start = rng.integers(0, 400, rows)
    nowhere = rng.random(rows) < 0.1
    return pa.table(
        {
            "id": np.arange(rows),
            "k": pa.array(rng.integers(0, 60, rows), mask=nowhere),
            "h": np.where(rng.random(rows) < 0.7, 7, rng.integers(0, 30, rows)),
            "g": pa.array(np.where(rng.random(rows) < 0.99, 1, 2)),
            "x": pa.array(x, mask=nowhere),
            "y": np.where(rng.random(rows) < 0.02, np.nan, y),
            "s": [f"{'' if i % 7 else 'longprefix'}{'abcdef'[i % 6]}{i % 5}" for i in range(rows)],
            "start_at": pa.array(start * 1_000_000, pa.timestamp("us", "UTC")),
            "end_at": pa.array((start + rng.integers(-2, 12, rows)) * 1_000_000, pa.timestamp("us", "UTC")),
            "ymin": y,
            "ymax": y + rng.random(rows) * 6,
        }
    )


def rows_by_type(pairs: list[tuple[int, int]], contents: list[dict[int, tuple[Any, ...]]]) -> dict[str, Counter[str]]:
    """The result of each join type, given the pairs of an inner join."""
    left, right = contents
    met = {i for i, _ in pairs}, {j for _, j in pairs}
    inner = [left[i] + right[j] for i, j in pairs]
    width = len(next(iter(left.values())))
    alone = [left[i] + (None,) * width for i in left.keys() - met[0]]
    others = [(None,) * width + right[j] for j in right.keys() - met[1]]
    found = {
        "inner": inner,
        "left": inner + alone,
        "right": inner + others,
        "full": inner + alone + others,
        "left_semi": [left[i] for i in met[0]],
        "left_anti": [left[i] for i in left.keys() - met[0]],
    }
    return {how: Counter(map(str, rows)) for how, rows in found.items()}


def rows_of(frame: DataFrame) -> Counter[str]:
    return Counter(str(tuple(row)) for row in frame.collect())
