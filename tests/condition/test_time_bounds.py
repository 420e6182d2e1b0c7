"""Bounds on the difference of two timestamps, as derived from a condition for joins of streams."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from dovetail.condition import matching, parse
from dovetail.condition.time_bounds import TimeBound, time_bounds
from dovetail.core.rows import Side

SECOND, HOUR = 1_000_000, 3_600_000_000
SCHEMA = pa.schema(
    [("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("due", pa.timestamp("us", "UTC")), ("day", pa.date32())]
)


def bounds(on: str) -> set[TimeBound]:
    return set(time_bounds(parse(on, SCHEMA, SCHEMA, zone="UTC")))


def low(offset: int, strict: bool = False, equal: bool = False, columns: tuple[str, str] = ("ts", "ts")) -> TimeBound:
    return TimeBound(*columns, below=True, offset=offset, strict=strict, equal=equal)


def high(offset: int, strict: bool = False, equal: bool = False, columns: tuple[str, str] = ("ts", "ts")) -> TimeBound:
    return TimeBound(*columns, below=False, offset=offset, strict=strict, equal=equal)


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 1 HOUR", {low(-HOUR), high(0)}),
        ("l.ts > r.ts - INTERVAL 1 HOUR", {low(-HOUR, strict=True)}),
        ("l.ts - r.ts < INTERVAL 10 SECONDS", {high(10 * SECOND, strict=True)}),
        ("r.ts + INTERVAL 1 HOUR <= l.ts - INTERVAL 10 SECONDS", {low(HOUR + 10 * SECOND)}),
        ("abs(l.ts - r.ts) <= INTERVAL 5 SECONDS", {low(-5 * SECOND), high(5 * SECOND)}),
        ("INTERVAL 5 SECONDS > abs(r.ts - l.ts)", {low(-5 * SECOND, strict=True), high(5 * SECOND, strict=True)}),
        ("l.ts = r.ts", {low(0, equal=True), high(0, equal=True)}),
        ("l.ts = r.due + INTERVAL 1 SECOND", {b(SECOND, equal=True, columns=("ts", "due")) for b in (low, high)}),
        ("NOT (l.ts <= r.ts)", {low(0, strict=True)}),
        ("l.due >= r.ts AND l.ts <= r.ts", {low(0, columns=("due", "ts")), high(0)}),
        ("CAST(l.ts AS BIGINT) > CAST(r.ts AS BIGINT) - 60", {low(-62 * SECOND)}),
        ("2 * CAST(l.ts AS BIGINT) - 7 <= CAST(r.ts AS BIGINT) * 2", {high(5 * SECOND + SECOND // 2)}),
        ("l.k < r.k", set()),
        ("l.ts < r.ts OR l.k = r.k", set()),
        ("l.ts + INTERVAL 1 MONTH > r.ts", set()),
        ("l.ts < l.due AND l.k = r.k", set()),
        ("l.ts - r.ts < l.due - l.ts", set()),
        ("CAST(l.ts AS DATE) = CAST(r.ts AS DATE)", set()),
        ("l.ts != r.ts", set()),
    ],
)
def test_bounds(on: str, expected: set[TimeBound]) -> None:
    assert bounds(on) == expected


def test_every_pair_keeps_to_the_bounds() -> None:
    """All pairs that satisfy the condition satisfy its bounds, including casts and factors."""
    rng = random.Random(1)
    start = datetime(2026, 3, 1, tzinfo=UTC)
    times = [[start + timedelta(microseconds=rng.randrange(8 * SECOND)) for _ in range(40)] for _ in Side]
    batches = [
        pa.RecordBatch.from_pydict({"k": [1] * 40, "ts": side, "due": side, "day": [None] * 40}, schema=SCHEMA)
        for side in times
    ]
    left, right = (batch.column("ts").cast(pa.int64()).to_numpy() for batch in batches)
    for operator, offset in itertools.product(("<", "<=", ">", ">=", "="), (-2, 0, 3)):
        condition = parse(f"CAST(l.ts AS BIGINT) {operator} CAST(r.ts AS BIGINT) + {offset}", SCHEMA, SCHEMA)
        found = time_bounds(condition)
        assert found
        rows = np.divmod(np.arange(40 * 40), 40)
        pairs = matching(condition.conjuncts, batches[0], rows[0], batches[1], rows[1])
        assert pairs.any()
        differences = left[rows[0][pairs]] - right[rows[1][pairs]]
        for bound in found:
            assert (differences >= bound.offset if bound.below else differences <= bound.offset).all()
