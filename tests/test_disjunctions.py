"""Disjunctions, joined as a union of their alternatives: every join type, against the definition and DuckDB."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from tests.disjunctions import CONDITIONS, table
from tests.seed import seeded

import dovetail
from dovetail.columns.batches import one_batch
from dovetail.condition import parse
from dovetail.core.join_types import JoinType
from dovetail.execution.at_rest import count_at_rest
from dovetail.testing.conformance import Result, results_by_definition, results_by_duckdb

TYPES = ("inner", "left", "right", "full", "left_semi", "left_anti")


def atom(rng: random.Random) -> str:
    """A comparison that a kernel can drive, or a filter on one side."""
    name, other = rng.choice("ab"), rng.choice("ab")
    x, y = rng.choice("xy"), rng.choice("xy")
    return rng.choice(
        (
            f"l.{name} = r.{other}",
            f"l.{name} <=> r.{other}",
            "l.s = r.s",
            f"l.{x} {rng.choice(('<', '<=', '>', '>='))} r.{y}",
            f"l.{name} BETWEEN r.{other} - 1 AND r.{other} + 1",
            f"l.{name} != r.{other}",
            f"l.{x} IS NULL",
            f"r.{name} > 1",
        )
    )


def disjunction(rng: random.Random) -> str:
    branches = [" AND ".join(atom(rng) for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(2, 4))]
    text = " OR ".join(f"({branch})" for branch in branches)
    return f"({text}) AND {atom(rng)}" if rng.random() < 0.4 else text


def numbered(table: pa.Table) -> pa.Table:
    return table.append_column("row", pa.array(range(table.num_rows), pa.int64()))


def found(left: pa.Table, right: pa.Table, on: str, how: str) -> Counter[Result]:
    joined = dovetail.join(numbered(left), numbered(right), on, how)
    lefts = joined["row"].to_pylist()
    rights = joined["row_right"].to_pylist() if "row_right" in joined.column_names else [None] * len(lefts)
    return Counter(zip(lefts, rights, strict=True))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", TYPES)
@pytest.mark.parametrize("on", CONDITIONS)
def test_rows_of_every_join_type(on: str, how: str) -> None:
    rng = seeded(f"{on}{how}")
    left, right = table(rng, 40), table(rng, 50)
    tables = {"l": left, "r": right}
    expected = Counter(results_by_definition(tables, on, JoinType.read(how)))
    assert found(left, right, on, how) == expected
    if "(l.a, r.b)" not in on:
        assert Counter(results_by_duckdb(tables, on, JoinType.read(how))) == expected


@pytest.mark.one_in(5)
@pytest.mark.parametrize("seed", range(150))
def test_random_disjunctions(seed: int) -> None:
    rng = seeded(seed)
    on, how = disjunction(rng), rng.choice(TYPES)
    left, right = table(rng, rng.randint(0, 40)), table(rng, rng.randint(0, 40))
    tables = {"l": left, "r": right}
    expected = Counter(results_by_definition(tables, on, JoinType.read(how)))
    assert found(left, right, on, how) == expected, on
    assert Counter(results_by_duckdb(tables, on, JoinType.read(how))) == expected, on


@pytest.mark.one_in(2)
@pytest.mark.parametrize("on", CONDITIONS)
def test_counts_and_aggregates(on: str) -> None:
    rng = seeded(on)
    left, right = table(rng, 60), table(rng, 50)
    pairs = results_by_definition({"l": left, "r": right}, on, JoinType.INNER)
    assert dovetail.count(left, right, on) == len(pairs)
    wanted = {"n": "count(*)", "total": "sum(r.b)", "least": "min(l.a)"}
    (answer,) = dovetail.aggregate(left, right, on, wanted).to_pylist()
    lefts, rights = left["a"].to_pylist(), right["b"].to_pylist()
    numbers = [rights[r] for _, r in pairs if r is not None and rights[r] is not None]
    least = min((lefts[row] for row, _ in pairs if row is not None and lefts[row] is not None), default=None)
    assert answer == {"n": len(pairs), "total": sum(numbers) if numbers else None, "least": least}
    groups = dovetail.aggregate(left, right, on, {"n": "count(*)"}, by="r.s").to_pylist()
    strings = right["s"].to_pylist()
    assert {row["s"]: row["n"] for row in groups} == Counter(strings[r] for _, r in pairs if r is not None)


@pytest.mark.parametrize("on", CONDITIONS)
@pytest.mark.parametrize("memory", [None, "100KB"])
def test_progressive(on: str, memory: str | None) -> None:
    rng = seeded(on)
    left, right = table(rng, 60), table(rng, 50)
    expected = Counter(results_by_definition({"l": left, "r": right}, on, JoinType.INNER))
    steps = dovetail.progressive(numbered(left), numbered(right), on, memory=memory)
    rows = [(row["row"], row["row_right"]) for step in steps for row in step.batch.to_pylist()]
    assert Counter(rows) == expected


@pytest.mark.parametrize(
    "on",
    [
        "(a.a = b.a OR a.b = b.b) AND b.s = c.s",
        "(a.a = b.a OR a.b = b.b) AND (b.x < c.x OR b.s <=> c.s) AND a.y < 2",
        "(a.a = b.a AND a.x > 0 OR a.b = b.b AND a.x > 0) AND b.s = c.s",
    ],
)
def test_edges_of_a_join_of_three(on: str) -> None:
    rng = seeded(on)
    inputs = {alias: table(rng, 25) for alias in "abc"}
    expected = Counter(results_by_definition(inputs, on, JoinType.INNER))
    joined = dovetail.multijoin({alias: numbered(rows) for alias, rows in inputs.items()}, on)
    assert Counter(zip(*(joined[f"{alias}_row"].to_pylist() for alias in "abc"), strict=True)) == expected
    assert dovetail.count(inputs, on=on) == sum(expected.values())


def test_alternatives_that_kernels_drive_leave_no_nested_loop() -> None:
    schema = table(random.Random(0), 0).schema
    driven = {on: bool(parse(on, schema, schema).alternatives) for on in CONDITIONS}
    assert [on for on in CONDITIONS if not driven[on]] == ["l.a = r.a OR l.x + r.y = 3"]


@pytest.mark.parametrize("on", CONDITIONS[:-1])
def test_no_pair_satisfies_two_alternatives(on: str) -> None:
    rng = seeded(on)
    left, right = table(rng, 60), table(rng, 50)
    batches = one_batch(left, left.schema), one_batch(right, right.schema)
    branches = parse(on, left.schema, right.schema).branches
    pairs = results_by_definition({"l": left, "r": right}, on, JoinType.INNER)
    assert sum(count_at_rest(branch, *batches) for branch in branches) == len(pairs)
