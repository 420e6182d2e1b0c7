"""Disjunctions, and small tables in which all their alternatives match, with nulls and NaN."""

from __future__ import annotations

import math
import random

import pyarrow as pa

CONDITIONS = (
    "l.a = r.a OR l.b = r.b",
    "(l.a = r.a OR l.b = r.b) AND l.x < r.x",
    "l.a = r.a AND l.x < 2 OR l.b = r.b AND r.y > 1",
    "l.a = r.a OR l.a IS NULL AND r.a IS NULL",
    "l.a <=> r.a AND l.s <=> r.s",
    "l.a IN (r.a, r.b)",
    "(l.a, r.b) IN ((1, 2), (3, 1), (1, 0))",
    "l.x BETWEEN r.x AND r.y OR l.s = r.s",
    "abs(l.a - r.a) <= 1 OR l.x > r.x AND l.y < r.y",
    "l.x <= r.y AND l.y >= r.x OR l.a = r.b OR l.s = r.s",
    "l.x < r.x OR l.y < r.y OR l.a != r.a",
    "l.a = r.a OR l.x IS NULL",
    "l.x > 1 OR r.x > 1 OR l.a = r.a",
    "NOT (l.a != r.a AND l.b != r.b)",
    "(l.a = r.a OR l.b = r.b) AND (l.x < r.x OR l.y < r.y)",
    "l.a != r.a AND (l.b = r.b OR l.s = r.s) AND l.x < 3",
    "(l.x = 0e0 AND l.a = r.a) OR (l.x = -0e0 AND l.b = r.b)",
    "l.a = r.a OR l.x + r.y = 3",  # joined by the nested loop: the second has no kernel
)


def table(rng: random.Random, rows: int) -> pa.Table:
    integers = (None, 0, 1, 2, 3)
    doubles = (None, math.nan, -0.0, 0.0, 1.0, 1.5, 2.5, math.inf)
    columns = {name: pa.array(rng.choices(integers, k=rows), pa.int64()) for name in "ab"}
    columns |= {name: pa.array(rng.choices(doubles, k=rows), pa.float64()) for name in "xy"}
    return pa.table({**columns, "s": pa.array(rng.choices((None, "", "u", "uv"), k=rows), pa.string())})
