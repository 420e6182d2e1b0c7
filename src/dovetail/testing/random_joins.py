"""Random joins: small tables with a column of every kind, conditions over two to six inputs, schedules."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa

Schedule = list[tuple[Any, ...]]

TWO = ("l", "r")
SEVERAL = ("a", "b", "c", "d", "e", "f")

# Tiny domains, so that ties, duplicates and matches are frequent.

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

CONDITIONS = (
    "l.k = r.k",
    "l.k = r.k AND l.x < r.x",
    "l.k = r.k AND l.s = r.s",
    "l.s = r.s",
    "l.x = r.x",
    "l.d = r.d AND l.b = r.b",
    "l.t = r.t",
    "l.n = r.n",
    "l.w = r.w",
    "l.k = r.x",
    "l.k + 1 = r.k AND l.x <> 0",
    "l.x < r.x",
    "l.x <= r.x AND l.k > r.k",
    "l.s < r.s AND l.t >= r.t",
    "l.k != r.k",
    "abs(l.x - r.x) <= 1",
    "l.k BETWEEN r.k - 1 AND r.k + 1",
    "l.k < r.n AND r.n <= l.n",
    "l.k = r.k OR l.s = r.s",
    "l.k <=> r.k",
    "l.k IS NULL OR r.x > 0",
    "l.x > 1 AND r.x < 1",
)
"""Conditions for two inputs, l and r."""

EDGES = (
    "{0}.k = {1}.k",
    "{0}.k = {1}.k",
    "{0}.s = {1}.s",
    "{0}.x = {1}.x",
    "{0}.t = {1}.t",
    "{0}.w = {1}.w",
    "{0}.k = {1}.k AND {0}.s = {1}.s",
    "{0}.d = {1}.d AND {0}.x <= {1}.x",
    "abs({0}.x - {1}.x) <= 1",
    "abs({0}.x - {1}.x) < 0.5",
    "{0}.k BETWEEN {1}.k - 1 AND {1}.k + 1",
    "{0}.n - {1}.n < 0.5 AND {0}.n - {1}.n > -0.6",
    "{0}.k < {1}.k AND {0}.d = {1}.d",
    "{0}.x < {1}.x",
    "{0}.k = {1}.x",
    "{0}.k + 1 = {1}.k",
)
"""Conditions between two of several inputs."""


def random_table(rng: random.Random, rows: int | None = None) -> pa.Table:
    """A small table with a column of every kind; sometimes empty, sometimes with a single key."""
    if rows is None:
        rows = rng.choice([0, 1, 2, 5, 9, 14, 20])
    one_key = rng.random() < 0.1
    columns = {}
    for name, (type_, values) in COLUMNS.items():
        domain = values[:1] if one_key else values
        columns[name] = pa.array([rng.choice(domain) for _ in range(rows)], type_)
    return pa.table(columns)


def random_condition(rng: random.Random, aliases: Sequence[str]) -> str:
    """A tree over three or more inputs; sometimes a shared attribute, a cycle, a filter, or a three-way conjunct."""
    if rng.random() < 0.2:
        column = rng.choice(["k", "s", "x"])
        return " AND ".join(f"{a}.{column} = {b}.{column}" for a, b in pairwise(aliases))
    shape = rng.choice(["chain", "star", "tree"])
    parts = []
    for i in range(1, len(aliases)):
        parent = {"chain": i - 1, "star": 0, "tree": rng.randrange(i)}[shape]
        ends = [aliases[parent], aliases[i]]
        rng.shuffle(ends)
        parts.append(rng.choice(EDGES).format(*ends))
    if rng.random() < 0.25:
        parts.append(rng.choice(EDGES).format(*rng.sample(aliases, 2)))
    if rng.random() < 0.15:
        parts.append(f"{rng.choice(aliases)}.x > -1")
    if rng.random() < 0.15:
        parts.append("{}.k + {}.k >= {}.k".format(*rng.sample(aliases, 3)))
    rng.shuffle(parts)
    return " AND ".join(parts)


def random_schedule(rng: random.Random, rows: Mapping[str, int]) -> Schedule:
    """Arrivals in random portions, stalls that interrupt reactive work, early ends, restarts."""
    left = dict(rows)
    schedule: Schedule = []
    while any(left.values()) and rng.random() < 0.97:
        event = rng.random()
        if event < 0.65:
            alias = rng.choice([name for name, count in left.items() if count])
            count = min(left[alias], rng.choice([1, 1, 2, 3, 5, 8]))
            left[alias] -= count
            schedule.append((alias, count))
        elif event < 0.92:
            schedule.append(("stall", rng.choice([1, 1, 2, 3, 7])))
            if rng.random() < 0.3:  # in the middle of reactive work
                schedule.append(("restart",))
        elif event < 0.96:
            schedule.append(("restart",))
        else:
            alias = rng.choice(list(left))
            left[alias] = 0
            schedule.append(("end", alias))
    return schedule
