"""Diag-Join against DuckDB: clustered, shuffled and repeated keys, nulls, filters, every join type; also on files."""

import gc
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.seed import generator

import dovetail
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.diag.join import DiagonalJoin
from dovetail.errors import BudgetError, InputError, PlanError
from dovetail.execution.output import output_schema
from dovetail.planning.plan import Choice, Diagonal, JoinPlan
from dovetail.sources.protocol import Scan, TableScan

DUCKDB = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "left_semi": "SEMI JOIN",
    "left_anti": "ANTI JOIN",
}
CONDITIONS = (
    "l.k = r.k",
    "l.k = r.k AND l.x < r.x",
    "l.k = r.k AND l.x > 3 AND r.x > 2",
    "l.k = r.k AND l.s = r.s",
    "l.s = r.s",
)


def rows(table: pa.Table) -> Counter[str]:
    return Counter(str(list(row.values())) for row in table.to_pylist())


def table(rng: np.random.Generator, keys: np.ndarray, nulls: float) -> pa.Table:
    n = len(keys)
    return pa.table(
        {
            "k": pa.array(keys, pa.int64(), mask=rng.random(n) < nulls),
            "x": rng.integers(0, 10, n),
            "s": [f"s{key % 1000}" for key in keys.tolist()],
            "row": np.arange(n),
        }
    )


def related(
    rng: np.random.Generator, ones: int, many: int, *, spread: float, repeats: float = 0.0, nulls: float = 0.0
) -> tuple[pa.Table, pa.Table]:
    """A table with a key, and one that refers to it in about the same order; a tenth of the references are dangling."""
    keys = np.arange(ones) * 3
    again = rng.random(ones) < repeats
    keys[again] = rng.choice(keys, int(again.sum())) if ones else keys
    at = np.arange(many) * ones // max(1, many) + rng.normal(0, spread, many).round().astype(np.int64)
    there = keys[np.clip(at, 0, ones - 1)] if ones else np.zeros(many, np.int64)
    foreign = np.where(rng.random(many) < 0.9, there, -1 - rng.integers(0, 5, many))
    return table(rng, keys, nulls), table(rng, foreign, nulls)


def expected(left: Any, right: Any, on: str, how: str, schema: pa.Schema) -> Counter[str]:
    connection = duckdb.connect()
    connection.register("l", left)
    connection.register("r", right)
    columns = "l.*" if how in ("left_semi", "left_anti") else "l.*, r.*"
    found = connection.sql(f"SELECT {columns} FROM l {DUCKDB[how]} r ON ({on})").to_arrow_table()
    return rows(found.rename_columns(schema.names).cast(schema))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("how", DUCKDB)
@pytest.mark.parametrize("on", CONDITIONS)
def test_rows_equal_those_of_duckdb(on: str, how: str) -> None:
    rng = generator([CONDITIONS.index(on), list(DUCKDB).index(how)])
    for case in range(4):
        spread, repeats = rng.choice([0.1, 3, 30]), (0, 0.1, 0.6, 0)[case % 4]
        sides = related(
            rng, int(rng.integers(0, 60)), int(rng.integers(0, 200)), spread=spread, repeats=repeats, nulls=0.1
        )
        left, right = sides if rng.random() < 0.5 else sides[::-1]
        options: dict[str, Any] = {"share": float(rng.choice([0.05, 0.2, 0.6, 1])), "tables": int(rng.integers(1, 7))}
        if rng.random() < 0.4:
            options["one"] = str(rng.choice(["left", "right"]))
        found = dovetail.join(left, right, on, how, algorithm="diag", **options)
        assert rows(found) == expected(left, right, on, how, found.schema), (case, options)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000))
def test_more_of_them(seed: int) -> None:
    rng = generator(seed)
    on, how = CONDITIONS[seed % len(CONDITIONS)], list(DUCKDB)[seed % len(DUCKDB)]
    sides = related(rng, int(rng.integers(0, 60)), int(rng.integers(0, 200)), spread=5, repeats=0.3 * (seed % 3))
    left, right = sides if seed % 7 < 3 else sides[::-1]
    found = dovetail.join(left, right, on, how, algorithm="diag", share=0.2, tables=1 + seed % 6)
    assert rows(found) == expected(left, right, on, how, found.schema)


def run(
    left: Any, right: Any, *, tables: int, table_rows: int, how: str = "inner", memory: int | None = None
) -> tuple[DiagonalJoin, list[Any]]:
    scans: tuple[Scan, Scan] = (TableScan(left), TableScan(right))
    condition = parse("l.k = r.k", left.schema, right.schema)
    diagonal = Diagonal(Side.LEFT, tables, table_rows, left.num_rows)
    plan = JoinPlan(Graph.of(condition), JoinType(how), Choice("diag", ""), memory_bytes=memory, diagonal=diagonal)
    join = DiagonalJoin(plan, scans, output_schema(left.schema, right.schema, "_right", JoinType(how)))
    return join, list(join.results())


def test_every_row_is_a_hit_or_a_mishit_and_looks_into_each_table_once_at_most() -> None:
    one, many = related(np.random.default_rng(0), 1000, 4003, spread=30)
    join, steps = run(one, many, tables=5, table_rows=20)
    tally = join.tally
    assert tally.hits + tally.mishits == many.num_rows
    assert 0 < tally.mishits < many.num_rows
    assert many.num_rows <= tally.lookups <= 5 * many.num_rows
    assert tally.passes == [2 * one.num_rows, many.num_rows]  # R1 is read again for the mishits
    assert join.counters.pages_written == 0
    assert {step.phase for step in steps} == {"arriving", "cleanup"}


def test_without_mishits_either_side_is_read_once_and_results_come_at_once() -> None:
    keys = np.arange(1000)
    one, many = pa.table({"k": keys}), pa.table({"k": np.repeat(keys, 4)})
    join, steps = run(one, many, tables=5, table_rows=10)
    assert join.tally.passes == [1000, 4000]
    assert join.tally.mishits == join.counters.pages_written == join.tally.repeats == 0
    assert {step.phase for step in steps} == {"arriving"}
    assert sum(step.batch.num_rows for step in steps) == 4000


def test_the_first_results_need_half_a_window_and_a_batch() -> None:
    keys = np.arange(200_000)
    one, many = pa.table({"k": keys}), pa.table({"k": np.repeat(keys, 2)})
    scans: tuple[Scan, Scan] = (TableScan(one), TableScan(many))
    condition = parse("l.k = r.k", one.schema, many.schema)
    plan = JoinPlan(
        Graph.of(condition), JoinType.INNER, Choice("diag", ""), diagonal=Diagonal(Side.LEFT, 5, 100, one.num_rows)
    )
    join = DiagonalJoin(plan, scans, output_schema(one.schema, many.schema, "_right"))
    next(results := join.results())
    assert max(join.tally.passes) <= 1 << 15  # one batch of each
    results.close()


@pytest.mark.one_in(2)
def test_mishits_larger_than_memory_go_to_disk() -> None:
    rng = np.random.default_rng(1)
    one = pa.table({"k": rng.permutation(2000), "pad": ["x" * 50] * 2000})
    many = pa.table({"k": rng.integers(0, 2500, 12_000), "v": np.arange(12_000)})
    for how in ("inner", "full"):
        join, steps = run(one, many, tables=5, table_rows=50, how=how, memory=150_000)
        assert join.counters.pages_written > 8
        assert join.counters.peak_bytes_in_memory <= 150_000
        found = pa.Table.from_batches([step.batch for step in steps])
        assert rows(found) == expected(one, many, "l.k = r.k", how, found.schema)


def test_repeated_keys_and_little_memory() -> None:
    rng = np.random.default_rng(2)
    one, many = related(rng, 1000, 4000, spread=20, repeats=0.2)
    for how in ("inner", "left", "right"):
        join, steps = run(one, many, tables=3, table_rows=30, how=how, memory=100_000)
        assert join.tally.repeats > 100
        found = pa.Table.from_batches([step.batch for step in steps])
        assert rows(found) == expected(one, many, "l.k = r.k", how, found.schema)


def test_too_many_repeated_keys_for_the_memory_are_an_error_that_says_so() -> None:
    one = pa.table({"k": np.arange(4000) // 2})
    with pytest.raises(BudgetError, match="keys of the left side repeat"):
        run(one, pa.table({"k": np.arange(8000) // 4}), tables=3, table_rows=100, memory=92_000)


def test_a_key_that_comes_again_where_nobody_looks() -> None:
    """The scan of RN ends early, since its later rows have no key, but R1 is still read to its end."""
    keys = np.arange(1000)
    keys[900] = 5
    one = pa.table({"k": keys, "row": np.arange(1000)})
    many = pa.table({"k": pa.array([5, 6, *[None] * 998], pa.int64())})
    join, steps = run(one, many, tables=3, table_rows=20)
    found = pa.Table.from_batches([step.batch for step in steps])
    assert sorted(found.column("row").to_pylist()) == [5, 6, 900]
    assert join.tally.repeats == 1


def test_files_are_read_as_the_window_slides(tmp_path: Path) -> None:
    one, many = related(generator(3), 1000, 4000, spread=10, nulls=0.01)
    pq.write_table(one, tmp_path / "one.parquet", row_group_size=170)
    (tmp_path / "many").mkdir()
    for part in range(4):  # names sort in the order of the rows
        pq.write_table(many.slice(1000 * part, 1000), tmp_path / "many" / f"{part}.parquet", row_group_size=299)
    paths = (tmp_path / "one.parquet", str(tmp_path / "many"))
    found = dovetail.join(*paths, "l.k = r.k", "full", algorithm="diag", memory="500KB")
    assert rows(found) == expected(one, many, "l.k = r.k", "full", found.schema)
    steps = list(dovetail.progressive(*paths, "l.k = r.k", algorithm="diag", memory="500KB"))
    assert steps[0].phase == "arriving"
    assert steps[-1].results == sum(step.batch.num_rows for step in steps)
    assert steps[-1].results == dovetail.join(one, many, "l.k = r.k").num_rows
    assert dovetail.count(*paths, "l.k = r.k") == steps[-1].results


def test_filters_keep_positions() -> None:
    """A filter on either side does not change the positions of rows, so the remaining rows match as before."""
    keys = np.arange(10_000)
    one = pa.table({"k": keys, "x": keys % 7})
    many = pa.table({"k": np.repeat(keys, 3), "late": np.repeat(keys, 3) > 8000})
    for on in ("l.k = r.k AND l.x = 3", "l.k = r.k AND r.late", "l.k = r.k AND l.x < 2 AND r.late"):
        steps = list(dovetail.progressive(one, many, on, algorithm="diag", share=0.02))
        assert "cleanup" not in {step.phase for step in steps} or "l.x" in on
        assert sum(step.batch.num_rows for step in steps) == dovetail.count(one, many, on)


def test_what_it_cannot_do_is_said() -> None:
    left, right = pa.table({"k": [1, 2]}), pa.table({"k": [2, 2]})
    with pytest.raises(PlanError, match="needs an equality"):
        dovetail.join(left, right, "l.k < r.k", algorithm="diag")
    with pytest.raises(InputError, match="share must be"):
        dovetail.join(left, right, "l.k = r.k", algorithm="diag", share=2)
    with pytest.raises(InputError, match="one must be 'left' or 'right'"):
        dovetail.join(left, right, "l.k = r.k", algorithm="diag", one="l")
    with pytest.raises(InputError, match="cells= is for DataFrames"):
        dovetail.join(left, right, "l.k = r.k", algorithm="diag", cells=3)
    with pytest.raises(InputError, match="share= is for algorithm='diag'"):
        dovetail.join(left, right, "l.k = r.k", share=0.1)
    with pytest.raises(InputError, match="needs the number of rows"):
        dovetail.progressive(pa.RecordBatchReader.from_batches(left.schema, []), right, ["k"], algorithm="diag")
    with pytest.raises(BudgetError, match="6 bytes for each of the 100,000 rows"):
        dovetail.join(pa.table({"k": range(100_000)}), right, ["k"], algorithm="diag", one="left", memory="100KB")
    with pytest.raises(InputError, match="diag joins tables and Parquet files"):
        dovetail.testing.simulate("diag", left, right, ["k"], [])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "left_semi", "left_anti"])
def test_threads_change_neither_rows_nor_order(how: str) -> None:
    """With mishits, repeated keys, null keys and rows without a partner, on either side."""
    rng = generator(0)
    keys = np.arange(30_000)
    keys[rng.integers(0, 30_000, 20)] = 7
    one = pa.table({"k": keys, "a": np.arange(30_000)})
    near = np.sort(rng.integers(-500, 30_500, 60_000)) + rng.integers(-200, 200, 60_000)
    near[rng.integers(0, 60_000, 100)] = rng.integers(0, 30_000, 100)
    many = pa.table({"k": pa.array(near, mask=rng.random(60_000) < 0.01), "b": np.arange(60_000)})
    for left, right in ((many, one), (one, many)):
        alone = dovetail.join(left, right, "l.k = r.k", how, algorithm="diag", threads=1)
        for threads in (2, 5):
            assert dovetail.join(left, right, "l.k = r.k", how, algorithm="diag", threads=threads).equals(alone)
        names = [(name, "ascending") for name in alone.column_names]
        assert alone.sort_by(names).equals(dovetail.join(left, right, "l.k = r.k", how).sort_by(names))


def test_a_reader_that_is_left_early_ends_its_threads() -> None:
    table = pa.table({"k": np.arange(200_000)})
    reader = dovetail.join(table, table, "l.k = r.k", algorithm="diag", to="reader", threads=2)
    assert reader.read_next_batch().num_rows
    del reader
    gc.collect()
    assert not any(thread.name == "dovetail" for thread in threading.enumerate())
