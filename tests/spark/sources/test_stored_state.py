"""The state of streaming joins as tables, while a query runs and after it has stopped."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.patience import wait_until

import dovetail

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

ABOUT = ("cell", "row_number", "settled")  # metadata, before the columns of the row

ROWS = 100
SCHEMA = "id bigint, k bigint, name string, at timestamp, price decimal(10, 2)"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stored")
    for number, side in enumerate(("orders", "payments", "refunds")):
        (directory / side).mkdir()
        rng = np.random.default_rng(number)
        columns = {
            "id": pa.array(np.arange(ROWS)),
            "k": pa.array(rng.integers(0, 20, ROWS)),
            "name": pa.array([None if i % 7 == 0 else f"{side} {i}" for i in range(ROWS)]),
            "at": pa.array([datetime(2026, 1, 1, 0, 0, i % 60, tzinfo=UTC) for i in range(ROWS)]),
            "price": pa.array([i / 4 for i in range(ROWS)]).cast(pa.decimal128(10, 2)),
        }
        pq.write_table(pa.table(columns), directory / side / "0.parquet")
    return directory


def streams(spark: SparkSession, place: Path, *names: str) -> list[DataFrame]:
    return [spark.readStream.schema(SCHEMA).parquet(str(place / name)) for name in names]


def started(joined: DataFrame, checkpoint: Path) -> Any:
    return joined.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


def _has_rows(query: Any) -> bool:
    return query.exception() is None and any(progress["numInputRows"] for progress in query.recentProgress)


def figures(query: Any, metrics: str = "dovetail") -> dict[str, int]:
    """The figures of the last micro-batch with rows."""
    told = [progress for progress in query.recentProgress if progress["numInputRows"]]
    return dict(told[-1]["observedMetrics"][metrics].asDict())


@pytest.mark.one_in(3)
def test_cells_and_rows_of_a_join(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    state, checkpoint = tmp_path / "state", tmp_path / "checkpoint"
    joined = dovetail.join(*streams(spark, place, "orders", "payments"), "l.k = r.k", state_dir=str(state), cells=2)
    query = started(joined, checkpoint)
    query.processAllAvailable()
    told = figures(query)
    reader = spark.read.format("dovetail-state")
    sides = [spark.read.parquet(str(place / name)) for name in ("orders", "payments")]
    for running in (True, False):
        assert query.isActive == running
        cells = reader.load(str(state)).collect()
        assert {(c.query, c.join, c.algorithm, c.how, c.condition) for c in cells} == {
            (query.id, "dovetail", "shj", "inner", "l.k = r.k")
        }
        assert sum(c.rows for c in cells) == 2 * ROWS == told["resident_rows"] + told["spilled_rows"]
        assert max(c.rows for c in cells) == told["largest_cell_rows"]
        assert sum(c.bytes for c in cells) == told["state_bytes"]
        assert told["cells"] == len(cells) == 2
        for side, given in zip(("left", "right"), sides, strict=True):
            rows = reader.option("table", "rows").option("input", side).load(str(state))
            assert rows.columns == [*ABOUT, *given.columns]
            assert [f.dataType for f in rows.schema][len(ABOUT) :] == [f.dataType for f in given.schema]
            assert Counter(map(tuple, rows.drop(*ABOUT).collect())) == Counter(map(tuple, given.collect()))
            committed = rows if running else reader.option("checkpoint", str(checkpoint)).load(str(state))
            assert committed.count() == ROWS
            assert {row.cell for row in rows.collect()} == {c.cell for c in cells}
        reader = spark.read.format("dovetail-state")
        query.stop()


@pytest.mark.slow
def test_a_window_and_several_inputs(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    windowed = dovetail.join(
        *streams(spark, place, "orders", "payments"),
        "l.price < r.price AND l.k > r.k",
        window=dovetail.window(rows=40),
        state_dir=state,
        cells=2,
        metrics="in a window",
    )
    several = dovetail.multijoin(
        dict(zip("opr", streams(spark, place, "orders", "payments", "refunds"), strict=True)),
        "o.k = p.k AND p.k = r.k",
        state_dir=state,
        end="id < 0",
    )
    queries = [started(windowed, tmp_path / "a"), started(several, tmp_path / "b")]
    for query in queries:  # one of them has timers, so there is always something to process
        wait_until(lambda query=query: _has_rows(query), "the rows")
    told, several_told = figures(queries[0], "in a window"), figures(queries[1])
    for query in queries:
        query.stop()
    assert told["evicted_rows"] + told["window_rows"] == 2 * ROWS
    assert told["late_rows"] == 0
    reader = spark.read.format("dovetail-state")
    cells = {(c.query, c.cell): c for c in reader.load(state).collect()}
    ours = [c for c in cells.values() if c.query == queries[0].id]
    assert {(c.join, c.algorithm, c.how) for c in ours} == {("in a window", "spo", "inner")}
    assert (sum(c.rows for c in ours), sum(c.bytes for c in ours)) == (told["window_rows"], told["state_bytes"])
    others = [c for c in cells.values() if c.query == queries[1].id]
    assert sum(c.rows for c in others) == several_told["resident_rows"] + several_told["spilled_rows"]
    assert sum(c.bytes for c in others) == several_told["state_bytes"]
    rows = reader.option("table", "rows").option("query", queries[1].id).option("input", "p").load(state)
    payments = spark.read.parquet(str(place / "payments"))
    assert set(map(tuple, rows.drop(*ABOUT).collect())) == set(map(tuple, payments.collect()))
    with pytest.raises(Exception, match="the join has no input 'left': there are o, p, r"):
        reader.option("input", "left").load(state)
    with pytest.raises(Exception, match="rows are of one join: name it"):
        spark.read.format("dovetail-state").option("table", "rows").option("input", "left").load(state)
    with pytest.raises(Exception, match="tabel: no such option"):
        spark.read.format("dovetail-state").option("tabel", "rows").load(state)
