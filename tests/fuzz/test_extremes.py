"""Random joins of two and three inputs over values at the ends of every type, against a cross product and a filter.

DOVETAIL_FUZZ_CASES=100000 pytest --seed 7 tests/fuzz/test_extremes.py
"""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import pyarrow as pa
import pytest
from tests.effort import CASES
from tests.fuzz.extremes import FAMILIES, Column, Predicate, fits, random_column, random_predicate
from tests.seed import SEED

import dovetail
from dovetail.errors import ConditionError, PlanError

SHARDS = 10
ZERO = Fraction(0)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_difference(shard: int) -> None:
    for number in range(shard, CASES // 2, SHARDS):
        check(SEED * 1_000_003 + number)


def check(seed: int) -> None:
    rng = random.Random(seed)
    family = rng.choice(FAMILIES)
    left_type, right_type = rng.choice(family), rng.choice(family)
    if rng.random() < 0.4:
        right_type = left_type
    columns = [random_column(rng, type_, rng.choice((1, 5, 12))) for type_ in (left_type, right_type)]
    predicates = [random_predicate(rng, left_type, right_type) for _ in range(rng.choice((1, 1, 2)))]
    tables = [
        pa.table({"row": pa.array(range(len(column.values)), pa.int64()), name: column.array})
        for name, column in zip("ab", columns, strict=True)
    ]
    on = " AND ".join(predicate.sql for predicate in predicates)
    algorithm = rng.choice(("auto", "auto", "mjoin", "miner", "pmj"))
    try:
        compare(on, tables, columns, predicates, algorithm)
    except Exception as error:
        texts = [f"{column.type}: {column.array.to_string(window=20)}" for column in columns]
        error.add_note("\n".join([f"check({seed}): {algorithm}", on, *texts]))
        raise


def compare(
    on: str, tables: list[pa.Table], columns: list[Column], predicates: list[Predicate], algorithm: str
) -> None:
    expected, overflows = pairs_by_definition(columns, predicates)
    left, right = tables
    third = left.select(["row"])
    several = on.replace("l.a", "x.a").replace("r.b", "y.b")
    try:
        found = dovetail.join(left, right, on)
        without = dovetail.join(left, right, on, "left_anti")
        number = dovetail.count(left, right, on)
        inputs = {"x": left, "y": right, "z": third}
        try:
            triples = dovetail.multijoin(inputs, f"{several} AND z.row = x.row", algorithm=algorithm)
        except PlanError:  # the algorithm does not support the condition
            triples = dovetail.multijoin(inputs, f"{several} AND z.row = x.row")
    except ConditionError:
        assert overflows
        return
    assert sorted(zip(found["row"].to_pylist(), found["row_right"].to_pylist(), strict=True)) == expected
    assert sorted(without["row"].to_pylist()) == sorted(set(range(len(left))) - {row for row, _ in expected})
    assert number == len(expected)
    assert sorted(zip(triples["x_row"].to_pylist(), triples["y_row"].to_pylist(), strict=True)) == expected


def pairs_by_definition(columns: list[Column], predicates: list[Predicate]) -> tuple[list[tuple[int, int]], bool]:
    """The pairs, and whether a computation overflows: then an error is also correct."""
    types = (columns[0].type, columns[1].type)
    fitting = all(fits(value, *types) for column in columns for value in column.values if value is not None)
    pairs = []
    for (i, a), (j, b) in product(enumerate(columns[0].values), enumerate(columns[1].values)):
        # Evaluate all of them, even on nulls: each may overflow.
        holding = [predicate.holds(ZERO if a is None else a, ZERO if b is None else b) for predicate in predicates]
        if a is not None and b is not None and all(holding):
            pairs.append((i, j))
    return pairs, not fitting or any(predicate.limits.crossed for predicate in predicates)
