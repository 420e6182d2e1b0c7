"""Random joins of three and four inputs over tables of every type, against DuckDB.

    DOVETAIL_FUZZ_CASES=100000 pytest --seed 7 tests/fuzz/test_multijoins.py

A failing case prints everything needed, and `draw(seed)` recreates it.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pytest
from tests.condition.random_conditions import Text
from tests.effort import CASES
from tests.fuzz.columns import PAYLOADS, Spread, for_duckdb, random_column
from tests.fuzz.conditions import Conditions, all_of, renamed
from tests.seed import SEED

import dovetail
from dovetail.errors import PlanError

SHARDS = 10
ALIASES = "wxyz"
ROWS = (0, 1, 3, *[8, 15] * 5)
MOST = ((1,), (1, 2), (1, 2), (2, 3), (3, 6), (99,))  # number of distinct values of a column


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    tables: dict[str, pa.Table]
    on: Text
    algorithm: str

    def __str__(self) -> str:
        lines = [
            f"draw({self.seed}): algorithm={self.algorithm!r}",
            f"on = {self.on.spark!r}",
            f"duckdb = {self.on.duck!r}",
        ]
        lines += [
            f"{alias} = pa.table({table.to_pydict()}, pa.schema({[(f.name, str(f.type)) for f in table.schema]}))"
            for alias, table in self.tables.items()
        ]
        return "\n".join(lines)


def draw(seed: int) -> Case:
    """Every input joins an earlier one; sometimes an edge closes a cycle."""
    rng = random.Random(seed)
    aliases = ALIASES[: rng.choice((3, 3, 4))]
    edges = [(rng.choice(aliases[:i]), aliases[i]) for i in range(1, len(aliases))]
    if rng.random() < 0.3:
        first, second = rng.sample(aliases, 2)
        edges.append((first, second))
    on = all_of([renamed(Conditions(rng).edge(), *rng.sample(edge, 2)) for edge in edges])
    spread = Spread(rng.random() < 0.1, rng.choice(MOST), rng.choice((0.0, 0.0, 0.1)))
    tables = {alias: _table(rng, alias, on, spread) for alias in aliases}
    return Case(seed, tables, on, rng.choice(("auto", "auto", "mjoin", "miner", "pmj")))


def _table(rng: random.Random, alias: str, on: Text, spread: Spread) -> pa.Table:
    rows = rng.choice(ROWS)
    names = dict.fromkeys([*re.findall(rf"\b{alias}\.(\w+)", on.spark), rng.choice(list(PAYLOADS))])
    columns = {name: random_column(rng, name, rows, spread) for name in names}
    table = pa.table({"row": pa.array(range(rows), pa.int64()), **columns})
    cut = rng.randint(0, rows)
    return table if rng.random() < 0.5 else pa.concat_tables([table.slice(0, cut), table.slice(cut)])


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_difference(shard: int) -> None:
    for number in range(shard, CASES // 2, SHARDS):
        case = draw(SEED * 1_000_003 + number)
        try:
            check(case)
        except Exception as error:
            error.add_note(str(case))
            raise


def check(case: Case) -> None:
    try:
        found = dovetail.multijoin(case.tables, case.on.spark, algorithm=case.algorithm)
    except PlanError:  # the algorithm does not support the condition
        found = dovetail.multijoin(case.tables, case.on.spark)
    rows = [found[f"{alias}_row"].to_pylist() for alias in case.tables]
    with duckdb.connect() as duck:
        duck.execute("SET threads = 1")
        duck.execute("SET TimeZone = 'UTC'")
        for alias, table in case.tables.items():
            duck.register(alias, for_duckdb(table))
        wanted = ", ".join(f"{alias}.row" for alias in case.tables)
        expected = duck.execute(f"SELECT {wanted} FROM {', '.join(case.tables)} WHERE {case.on.duck}").fetchall()
    assert sorted(zip(*rows, strict=True)) == sorted(expected)
    for alias, table in case.tables.items():
        for name in table.column_names:
            column = f"{alias}_{name}" if f"{alias}_{name}" in found.column_names else name
            values = table[name].to_pylist()
            assert repr(found[column].to_pylist()) == repr([values[row] for row in found[f"{alias}_row"].to_pylist()])
