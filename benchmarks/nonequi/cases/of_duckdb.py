"""DuckDB's micro benchmarks of range joins and as-of joins, with the same sizes and distributions.

Three of its files are left out: `range_join_small_rhs` joins with a single row, `asof_join_unpartitioned` has a hundred
million rows, and `iejoin_inequality_pushdown` needs TPC-H at scale 10.
"""

from __future__ import annotations

import numpy as np

from benchmarks.nonequi.case import Case, Tables
from benchmarks.nonequi.cases.columns import side
from benchmarks.nonequi.question import AsOf, Compare, Overlap, Pairs

YEAR_US = 365 * 24 * 3600 * 10**6
KEYS, TIMES = 50, 100_000


def asof_join(rows: int, rng: np.random.Generator) -> Tables:
    """50 keys with 100,000 minutes each, and the same half a minute earlier; every other key has a partner."""
    key, minute = np.tile(np.arange(KEYS), TIMES), np.repeat(np.arange(TIMES), KEYS)
    left = side("l", {"k": 2 * key, "t": 60 * minute - 30}, rng)
    return left, side("r", {"k": key, "t": 60 * minute}, rng)


def small_probe(rows: int, rng: np.random.Generator) -> Tables:
    left = side("l", {"k": np.arange(rows), "t": rng.integers(0, YEAR_US, rows)}, rng)
    return left, side("r", {"k": np.arange(10 * rows) % rows, "t": rng.integers(0, YEAR_US, 10 * rows)}, rng)


def employees(rows: int, rng: np.random.Generator) -> Tables:
    """One in a hundred pays less tax than an employee who earns less."""
    salary = 100 * np.arange(1, rows)
    tax = salary // 10 - np.where(rng.random(rows - 1) <= 0.01, 11, 0)
    return side("l", {"salary": salary, "tax": tax}, rng), side("r", {"salary": salary, "tax": tax}, rng)


def events(rows: int, rng: np.random.Generator) -> Tables:
    """Minutes within 40 years; one event in ten takes two hours."""
    start = (np.round(rng.random(rows) * 40 * 365) * 24 + np.round(rng.random(rows) * 23)).astype(np.int64) * 60
    length = np.where(rng.random(rows) < 0.1, 120, 5 + np.round(rng.random(rows) * 50)).astype(np.int64)
    columns = {"s": start, "e": start + length}
    return side("l", columns, rng), side("r", columns, rng)


def seconds(rows: int, rng: np.random.Generator) -> Tables:
    """An interval for each second, and a key for a thousand of them."""
    second = np.arange(rows)
    columns = {"k": second // 1000, "s": second, "e": second + 1}
    return side("l", columns, rng), side("r", columns, rng)


def integers(rows: int, rng: np.random.Generator) -> Tables:
    number = np.arange(rows, dtype=object)
    i, j = (
        (number * factor % modulus).astype(np.int64) for factor, modulus in ((9582398353, 1000), (847892347987, 100))
    )
    return side("l", {"q": i // 1000}, rng), side("r", {"j": j}, rng)


SOURCE = "DuckDB, `benchmark/micro/join/{}.benchmark`"
MEET = Overlap("l_s", "l_e", "r_s", "r_e")
EVENTS = (Compare("l_s", "<=", "r_e"), Compare("l_e", ">=", "r_s"), Compare("l_id", "<>", "r_id"))
PAYS_LESS = (Compare("l_salary", "<", "r_salary"), Compare("l_tax", ">", "r_tax"))
BY_KEY = AsOf("l_t", "r_t", ("l_k", "r_k"))
CASES = [
    Case("duckdb_asof", "DuckDB: as-of, 50 keys", asof_join, BY_KEY, SOURCE.format("asof_join"), KEYS * TIMES),
    Case(
        "duckdb_asof_small",
        "DuckDB: as-of, small probe",
        small_probe,
        BY_KEY,
        SOURCE.format("asof_join_small_probe"),
        100_000,
    ),
    Case(
        "duckdb_employees",
        "DuckDB: employees",
        employees,
        Pairs(PAYS_LESS),
        SOURCE.format("iejoin_employees"),
        10_000_000,
    ),
    Case("duckdb_events", "DuckDB: events", events, Pairs(EVENTS), SOURCE.format("iejoin_events"), 30_000),
    Case(
        "duckdb_selectivity",
        "DuckDB: key and overlap",
        seconds,
        Pairs((Compare("l_k", "=", "r_k"), MEET)),
        SOURCE.format("iejoin_selectivity"),
        10_000_000,
    ),
    Case(
        "duckdb_threading",
        "DuckDB: overlap of seconds",
        seconds,
        Pairs((MEET,)),
        SOURCE.format("iejoin_threading"),
        10_000_000,
    ),
    Case(
        "duckdb_range",
        "DuckDB: range, no result",
        integers,
        Pairs((Compare("l_q", ">", "r_j"),)),
        SOURCE.format("range_join"),
        100_000,
    ),
    Case(
        "duckdb_range_big",
        "DuckDB: range, 2.5 G results",
        integers,
        Pairs((Compare("l_q", "<", "r_j"),)),
        SOURCE.format("range_join_big_result"),
        50_000,
        only_counted=True,
    ),
]
