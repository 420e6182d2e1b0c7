"""As-of joins of streams as queries on Spark: two streams, a stream and a table, restarts, and errors."""

from __future__ import annotations

import os
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.best_oracle import check, numbered, partners
from tests.seed import seeded
from tests.spark.streaming.test_as_of_cells import SECOND, Oracle, stream

import dovetail
from dovetail.condition.best import parse_best
from dovetail.condition.spellings import spell_asof, spell_nearest
from dovetail.errors import DovetailError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

FILES = 5
DELAYS = ("5 seconds", "9 seconds")
JOINS: dict[str, dict[str, Any]] = {
    "backward": {"by": "k", "how": "left"},
    "words": {"by": "s", "direction": "forward", "tolerance": "7 seconds", "how": "left"},
    "no keys": {"direction": "nearest", "tolerance": "7 seconds", "how": "inner"},
    "before": {"by": "k", "exact": False, "tolerance": "2 seconds", "how": "inner"},
}
TOLERANCES = {"7 seconds": 7 * SECOND, "2 seconds": 2 * SECOND, None: None}


def add_files(directory: Path, table: pa.Table, cuts: list[int], numbers: range) -> None:
    directory.mkdir(exist_ok=True)
    for number in numbers:
        path = directory / f"{number}.parquet"
        pq.write_table(table.slice(cuts[number], cuts[number + 1] - cuts[number]), path)
        os.utime(path, (1_000 + number,) * 2)


def read(spark: SparkSession, directory: Path) -> DataFrame:
    schema = spark.read.parquet(str(directory)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(directory))


def run(joined: DataFrame, checkpoint: Path) -> list[Any]:
    found: list[Any] = []
    writer = joined.writeStream.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).foreachBatch(lambda batch, _: found.extend(batch.collect())).start()
    query.awaitTermination()
    return found


def test_two_streams(spark: SparkSession, tmp_path: Path) -> None:
    """Several joins in one query, restarted halfway; the last one counts by windows of the left time."""
    rng = seeded("as-of streams on Spark")
    tables = stream(rng, 58, "left_row"), stream(rng, 38, "right_row")
    sides = (tmp_path / "left", tmp_path / "right")
    cuts = [[*range(0, table.num_rows - 2, table.num_rows // (FILES - 1)), table.num_rows - 2] for table in tables]
    cuts = [[*c[: FILES - 1], t.num_rows - 2, t.num_rows - 1, t.num_rows] for c, t in zip(cuts, tables, strict=True)]
    count = len(cuts[0]) - 1
    wanted = {
        name: Oracle(
            tables,
            options.get("by"),
            options.get("direction", "backward"),
            TOLERANCES[options.get("tolerance")],
            options.get("exact", True),
            options["how"],
            (5_000, 9_000),
        )
        for name, options in JOINS.items()
    }

    def query() -> DataFrame:
        left, right = (read(spark, side).withWatermark("ts", delay) for side, delay in zip(sides, DELAYS, strict=True))
        found = []
        for name, options in JOINS.items():
            joined = dovetail.asof(left, right, "ts", **options, metrics=name, state_dir=str(tmp_path / "state"))
            found.append(joined.select(F.lit(name).alias("name"), "left_row", "right_row"))
        same = "l.k = r.k AND l.ts >= r.ts"
        state: dict[str, Any] = {"metrics": "top", "state_dir": str(tmp_path / "state")}
        best = dovetail.join(
            left, right, same, "left", top=1, order_by="r.ts DESC", columns=["left_row", "ts"], **state
        )
        counted = best.groupBy(F.window("ts", "10 seconds")).agg(F.count("*").alias("n"))
        found.append(counted.select(F.lit("windows"), F.unix_seconds("window.start"), "n"))
        return reduce(DataFrame.unionAll, found)

    results: list[Any] = []
    for numbers in (range(3), range(3, count)):
        for side, table, cut in zip(sides, tables, cuts, strict=True):
            add_files(side, table, cut, numbers)
        results += run(query(), tmp_path / "checkpoint")
        for oracle in wanted.values():
            for number in numbers:
                oracle.micro_batch([(side, range(cuts[side][number], cuts[side][number + 1])) for side in (0, 1)])
                oracle.pass_time()
            oracle.micro_batch([])
    for name, oracle in wanted.items():
        found = Counter((row.left_row, row.right_row) for row in results if row.name == name)
        assert found == oracle.result(oracle.due()), name
    due = [at for row in wanted["backward"].due() if (at := wanted["backward"].times[0][row]) is not None]
    windows = Counter(at // SECOND // 10 * 10 for at in due)
    closed = {start: n for start, n in windows.items() if (start + 10) * 1000 <= wanted["backward"].watermark_ms}
    assert {row.left_row: row.right_row for row in results if row.name == "windows"} == closed


def test_a_stream_and_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """Each row of the stream is looked up in the whole table, which has several parts."""
    rng = seeded("as-of stream and table")
    left, right = numbered(stream(rng, 60, "a")), numbered(stream(rng, 90, "b"))
    add_files(tmp_path / "left", left, [0, 20, 40, 62], range(3))
    rows, table = read(spark, tmp_path / "left"), spark.createDataFrame(right)
    schemas = (left.schema, right.schema)
    state: dict[str, Any] = {"state_dir": str(tmp_path / "state"), "memory": 70_000}
    asof = spell_asof(schemas, "ts", "k", "forward", None, True)
    near = spell_nearest(schemas, ["k", "a"], None, None, "both")._replace(order_by="distance(l.k, l.a, r.k, r.b)")
    found = run(
        reduce(
            DataFrame.unionAll,
            [
                dovetail.asof(rows, table, "ts", by="k", direction="forward", **state).withColumn(
                    "name", F.lit("asof")
                ),
                dovetail.join(rows, table, near.on, top=2, order_by=near.order_by, **state).withColumn(
                    "name", F.lit("near")
                ),
            ],
        ),
        tmp_path / "checkpoint",
    )
    for name, spelled, top, how in (("asof", asof, 1, "left"), ("near", near, 2, "inner")):
        best = parse_best(top, spelled.order_by, "any", schemas, is_distance=name == "asof" and spelled.is_distance)
        mine = sorted((row for row in found if row.name == name), key=lambda row: row["row number"])
        names = ["row number", "row number_right"]
        table_of = pa.table({one: pa.array([row[one] for row in mine], pa.int64()) for one in names})
        check(table_of, how, best, partners(spelled.on, best, left, right), left.num_rows)


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = stream(seeded("refused"), 5, "row")
    add_files(tmp_path / "rows", rows, [0, 7], range(1))
    bare, table = read(spark, tmp_path / "rows"), spark.createDataFrame(rows)
    marked = bare.withWatermark("ts", "1 second")
    for left, right, options, message in (
        (bare, marked, {}, "the left stream needs a watermark"),
        (marked, bare, {}, "the right stream needs a watermark"),
        (table, marked, {}, "Exchange the inputs"),
        (marked, marked, {"end": "l.row = 1"}, "end= is for joins without a watermark"),
        (marked, marked, {"memory": "1MB"}, "memory= has no meaning"),
        (marked, marked, {"direction": "nearest", "exact": False, "tolerance": "1 s"}, "by event time only"),
        (marked, marked, {"limit": 0}, "limit=0"),
    ):
        with pytest.raises(DovetailError, match=message):
            dovetail.asof(left, right, "ts", by="k", **options)
    with pytest.raises(DovetailError, match="by event time only"):
        dovetail.nearest(marked, marked, ["row", "k"])
    plan = str(dovetail.explain(marked, marked, "ts", "left", of="asof", by="k", direction="nearest"))
    assert "waits for ever" in plan
    assert "the last one for longer" in plan
