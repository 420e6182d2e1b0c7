"""Small random tables with a column of every kind."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

# Random inputs: tiny domains, so that ties, duplicates and matches are frequent.

COLUMNS: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "k": (pa.int32(), (0, 1, 2, 3, None)),
    "x": (pa.float64(), (0.0, -0.0, 1.0, 1.5, float("nan"), float("inf"), -2.0, None)),
    "s": (pa.string(), ("", "a", "ab", "b", "é", None)),
    "d": (pa.date32(), (date(1970, 1, 1), date(2024, 2, 29), None)),
    "b": (pa.bool_(), (True, False, None)),
    "t": (
        pa.timestamp("us", "UTC"),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC), None),
    ),
    "n": (pa.decimal128(10, 2), (Decimal("0.50"), Decimal("1.00"), Decimal("-3.25"), None)),
    "w": (pa.decimal128(38, 4), (Decimal("1e30"), Decimal("1.0001"), None)),
}


def random_table(rng: random.Random, rows: int | None = None) -> pa.Table:
    """A small table with a column of every kind; sometimes empty, sometimes with one key only."""
    if rows is None:
        rows = rng.choice([0, 1, 2, 5, 9, 14, 20])
    one_key = rng.random() < 0.1
    columns = {}
    for name, (type_, values) in COLUMNS.items():
        domain = values[:1] if one_key else values
        columns[name] = pa.array([rng.choice(domain) for _ in range(rows)], type_)
    return pa.table(columns)
