"""An inner join goes on in a new query with other cells: stored rows and later ones, as docs/operations.md has it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it

import dovetail

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

ROWS = 240
SCHEMA = "id bigint, k bigint, ts timestamp"
START = datetime(2026, 1, 1, tzinfo=UTC)
SIDES = ("left", "right")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two streams, the earlier half and the later half of each in a directory of its own, of two files."""
    directory = tmp_path_factory.mktemp("rescale")
    for number, side in enumerate(SIDES):
        rng = np.random.default_rng(number)
        keys = pa.array(rng.integers(0, 30, ROWS), mask=rng.random(ROWS) < 0.1)
        times = pa.array([START + timedelta(seconds=i) for i in range(ROWS)], pa.timestamp("us", "UTC"))
        table = pa.table({"id": np.arange(ROWS), "k": keys, "ts": times})
        for quarter in range(4):
            path = directory / ("old", "new")[quarter // 2] / side / f"{quarter}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table.slice(quarter * ROWS // 4, ROWS // 4), path)
    return directory


def ids(frame: DataFrame) -> Counter[Any]:
    return Counter(map(tuple, frame.select("id", "id_right").collect()))


@pytest.mark.parametrize(
    ("on", "bounded"),
    [("l.k = r.k", False), ("l.k < r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 40 SECONDS", True)],
    ids=["unbounded", "by event time"],
)
def test_stored_rows_and_later_ones(on: str, bounded: bool, spark: SparkSession, place: Path, tmp_path: Path) -> None:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)

    def run(inputs: list[DataFrame], name: str, cells: int) -> DataFrame:
        marked = [frame.withWatermark("ts", "5 seconds") for frame in inputs] if bounded else inputs
        joined = dovetail.join(*marked, on, state_dir=str(tmp_path / f"state-{name}"), cells=cells)
        if "stored" in joined.columns:
            joined = joined.where("NOT (stored AND stored_right)")
        writer = joined.writeStream.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)
        dovetail.finish(writer.start(str(tmp_path / f"out-{name}")))
        return spark.read.parquet(str(tmp_path / f"out-{name}"))

    before = ids(run([reader.parquet(str(place / "old" / side)) for side in SIDES], "before", 2))
    stored = spark.read.format("dovetail-state").option("table", "rows").option("checkpoint", str(tmp_path / "before"))
    inputs = []
    for side in SIDES:
        rows = stored.option("input", side).load(str(tmp_path / "state-before")).drop("cell")
        assert 0 < rows.count() < ROWS // 2  # some have left, or have no key
        rows.write.parquet(str(tmp_path / side))
        seeded = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / side)).withColumn("stored", F.lit(True))
        live = reader.parquet(str(place / "new" / side)).withColumn("stored", F.lit(False))
        inputs.append(seeded.unionByName(live))
    after = ids(run(inputs, "after", 3))
    left, right = (spark.read.schema(SCHEMA).parquet(*(str(place / h / s) for h in ("old", "new"))) for s in SIDES)
    expected = ids(left.alias("l").join(right.withColumnRenamed("id", "id_right").alias("r"), F.expr(on)))
    assert before + after == expected
    assert before
    assert after
