"""dovetail.multijoin of tables in process, against the filtered cross product, and against DuckDB."""

from collections import Counter

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from tests.seed import generator, seeded

import dovetail
from dovetail.columns.batches import one_batch
from dovetail.condition.graph import parse_graph
from dovetail.errors import BudgetError, InputError, PlanError
from dovetail.execution.multiway import join_all_at_rest, join_order
from dovetail.testing import definition, random_condition, random_table

ORDERS = pa.table({"id": [1, 2, 3, 4], "custkey": [10, 20, 10, 30]})
CUSTOMERS = pa.table({"custkey": [10, 20, 30], "nationkey": [1, 2, 3]})
NATIONS = pa.table({"nationkey": [1, 2], "name": ["PERU", "CHAD"]})
ON = "o.custkey = c.custkey AND c.nationkey = n.nationkey"
INPUTS = {"o": ORDERS, "c": CUSTOMERS, "n": NATIONS}


def numbered(table: pa.Table) -> pa.Table:
    return table.append_column("row", pa.array(np.arange(table.num_rows)))


def rows_of(table: pa.Table, aliases: tuple[str, ...]) -> Counter[tuple[int, ...]]:
    return Counter(zip(*(table[f"{alias}_row"].to_pylist() for alias in aliases), strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_random_trees_of_three_to_six_inputs(seed: int) -> None:
    rng = seeded(seed)
    for case in range(12):
        count = rng.choice([3, 3, 4, 5, 6])
        aliases, most = tuple("abcdef")[:count], {3: 20, 4: 12, 5: 7, 6: 5}[count]
        tables = {alias: random_table(rng, rng.choice([0, 1, most, most])) for alias in aliases}
        on = random_condition(rng, aliases)
        expected = Counter(definition(tables, on=on))
        inputs = {alias: numbered(table) for alias, table in tables.items()}
        memory = rng.choice([None, "200KB"])
        found = rows_of(dovetail.multijoin(inputs, on, memory=memory), aliases)
        assert found == expected, f"seed {seed}, case {case}: {on}"


def test_pieces_of_any_size_give_the_same() -> None:
    rng = seeded(5)
    tables = {alias: random_table(rng, 14) for alias in "abc"}
    on = "a.k = b.k AND b.x < c.x AND a.s = c.s"
    graph = parse_graph(on, {alias: table.schema for alias, table in tables.items()})
    batches = {alias: one_batch(table, table.schema) for alias, table in tables.items()}
    for most in (1, 3, 50):
        found: Counter[tuple[int, ...]] = Counter()
        for tuples in join_all_at_rest(graph, batches, lambda matches: iter((matches,)), most):
            found.update(zip(*(rows.tolist() for rows in tuples.rows), strict=True))
        assert found == Counter(definition(tables, on=on))


@pytest.mark.parametrize("algorithm", ["auto", "miner"])
def test_a_chain(algorithm: str) -> None:
    joined = dovetail.multijoin(INPUTS, ON, algorithm=algorithm)
    assert joined.column_names == ["id", "o_custkey", "c_custkey", "c_nationkey", "n_nationkey", "name"]
    assert sorted(zip(joined["id"].to_pylist(), joined["name"].to_pylist(), strict=True)) == [
        (1, "PERU"),
        (2, "CHAD"),
        (3, "PERU"),
    ]


def test_other_tables_and_a_cycle() -> None:
    inputs = {"o": pl.from_arrow(ORDERS), "c": CUSTOMERS.to_pandas(), "n": NATIONS}
    joined = dovetail.multijoin(inputs, f"{ON} AND o.id >= n.nationkey AND name LIKE 'P%'")
    assert sorted(joined["id"].to_pylist()) == [1, 3]


@pytest.mark.parametrize("algorithm", ["miner", "mjoin"])
def test_rows_go_to_disk_when_memory_is_small(algorithm: str) -> None:
    rng = generator(0)
    tables = {a: pa.table({"k": rng.integers(0, 3000, 6000), f"v{a}": ["x" * 20] * 6000}) for a in "abc"}
    on = "a.k = b.k AND b.k = c.k"
    small = dovetail.multijoin(tables, on, algorithm=algorithm, memory="300KB")
    a, b, c = tables["a"], tables["b"], tables["c"]  # noqa: F841  DuckDB finds them by their names
    ((expected, total),) = duckdb.sql(
        "SELECT count(*), sum(a.k) FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k"
    ).fetchall()
    assert small.num_rows == expected == dovetail.multijoin(tables, on).num_rows
    assert small["a_k"].to_numpy().sum() == total


def test_the_order_starts_where_pairs_are_few() -> None:
    rng = generator(0)
    tables = {
        "big": pa.table({"k": rng.integers(0, 10, 1000), "u": np.arange(1000)}),
        "wide": pa.table({"k": rng.integers(0, 10, 1000)}),
        "few": pa.table({"u": np.arange(5)}),
    }
    batches = {alias: one_batch(table, table.schema) for alias, table in tables.items()}
    graph = parse_graph("big.k = wide.k AND big.u = few.u", {a: t.schema for a, t in tables.items()})
    start, steps = join_order(graph, batches)
    assert (start, [step.new for step in steps]) == ("big", ["few", "wide"])


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(InputError, match=r"For two: dovetail\.join"):
        dovetail.multijoin({"o": ORDERS, "c": CUSTOMERS}, "o.custkey = c.custkey")
    with pytest.raises(InputError, match="cannot be the name"):
        dovetail.multijoin({**INPUTS, "a b": NATIONS}, ON)
    with pytest.raises(InputError, match="differ in case only"):
        dovetail.multijoin({**INPUTS, "O": NATIONS}, ON)
    with pytest.raises(InputError, match="dictionary"):
        dovetail.multijoin([ORDERS, CUSTOMERS, NATIONS], ON)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cells= is for DataFrames"):
        dovetail.multijoin(INPUTS, ON, cells=3)
    with pytest.raises(PlanError, match="mjoin"):
        dovetail.multijoin(INPUTS, ON, algorithm="mjoin")
    with pytest.raises(InputError, match="no algorithm for 3 inputs"):
        dovetail.multijoin(INPUTS, ON, algorithm="shj")
    with pytest.raises(BudgetError, match="at least 5"):
        dovetail.multijoin(INPUTS, ON, memory="40KB")
    with pytest.raises(InputError, match="several columns called o_custkey"):
        dovetail.multijoin({**INPUTS, "n": NATIONS.append_column("o_custkey", pa.array([1, 2]))}, ON)


SEVERAL = {alias: pa.table({"k": np.arange(200) * 7 % 31, f"row_{alias}": np.arange(200)}) for alias in "xyz"}
ALONG = "x.k = y.k AND y.k = z.k AND x.row_x < 150"


def reader(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=17))


def rows_found(batches: list[pa.RecordBatch]) -> Counter[tuple[int, ...]]:
    table = pa.Table.from_batches(batches)
    return Counter(zip(*(table[f"row_{alias}"].to_pylist() for alias in "xyz"), strict=True))


@pytest.mark.parametrize("algorithm", ["auto", "miner", "mjoin", "pmj"])
@pytest.mark.parametrize("arriving", [False, True])
def test_results_of_several_inputs_as_they_come(algorithm: str, arriving: bool) -> None:
    """From tables and from readers, within a budget smaller than the inputs, with a recording."""
    inputs = {alias: reader(table) if arriving else table for alias, table in SEVERAL.items()}
    recording = dovetail.Recording()
    steps = list(dovetail.progressive(inputs, on=ALONG, memory="100KB", algorithm=algorithm, record=recording))
    expected = rows_found(dovetail.multijoin(SEVERAL, ALONG).to_batches())
    assert rows_found([step.batch for step in steps]) == expected
    assert steps[-1].results == expected.total() == dovetail.count(SEVERAL, on=ALONG) == recording.latest.results
    assert recording.heading.title == "x ⋈ y ⋈ z"


def test_plans_of_several_inputs() -> None:
    at_rest, early = dovetail.explain(SEVERAL, on=ALONG), dovetail.explain(SEVERAL, on=ALONG, progressive=True)
    assert (at_rest.operator.name, early.operator.name) == ("kernels", "miner")
    assert "driven by  x.k = y.k" in str(at_rest)
    assert "filter     x.row_x < 150" in str(early)


def test_what_several_inputs_cannot_do_is_said() -> None:
    same = reader(SEVERAL["x"])
    with pytest.raises(InputError, match="the same reader"):
        dovetail.progressive({"x": same, "y": same, "z": SEVERAL["z"]}, on="x.k = y.k AND y.k = z.k")
    with pytest.raises(PlanError, match="inner joins only"):
        dovetail.progressive(SEVERAL, on=ALONG, how="left")
    with pytest.raises(InputError, match="workers= is for two tables"):
        dovetail.progressive(SEVERAL, on=ALONG, workers=2)
    with pytest.raises(PlanError, match="as rows arrive"):
        dovetail.progressive(SEVERAL, on="x.k != y.k AND y.k = z.k")
