"""A join continues in a new query with other cells, from stored rows and later ones, as in docs/operations.md."""

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
from pyspark.sql import functions as F

import dovetail

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

ROWS = 240
FAR = timedelta(hours=1)  # time of the last row of each stream, which expires all others
SCHEMA = "id bigint, k bigint, ts timestamp"
START = datetime(2026, 1, 1, tzinfo=UTC)
SIDES = ("left", "right")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two streams; the earlier and the later half of each are in separate directories with two files."""
    directory = tmp_path_factory.mktemp("rescale")
    for number, side in enumerate(SIDES):
        rng = np.random.default_rng(number)
        keys = pa.array(rng.integers(0, 30, ROWS), mask=rng.random(ROWS) < 0.1)
        seconds = [timedelta(seconds=i) for i in range(ROWS - 1)] + [FAR]
        times = pa.array([START + later for later in seconds], pa.timestamp("us", "UTC"))
        table = pa.table({"id": np.arange(ROWS), "k": keys, "ts": times})
        for quarter in range(4):
            path = directory / ("old", "new")[quarter // 2] / side / f"{quarter}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table.slice(quarter * ROWS // 4, ROWS // 4), path)
    return directory


def ids(frame: DataFrame) -> Counter[Any]:
    return Counter(map(tuple, frame.select([c for c in ("id", "id_right") if c in frame.columns]).collect()))


def not_of_before(how: str) -> str:
    """Results that the previous query has not emitted."""
    if how == "inner":
        return "NOT (stored AND stored_right)"
    if how in ("left_semi", "left_anti"):
        return "NOT settled"
    return (
        "CASE WHEN stored AND stored_right THEN false WHEN stored_right IS NULL THEN NOT settled "
        "WHEN stored IS NULL THEN NOT settled_right ELSE true END"
    )


NEAR = "r.ts BETWEEN l.ts AND l.ts + INTERVAL 40 SECONDS"


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("on", "how"),
    [
        pytest.param("l.k = r.k", "inner", marks=pytest.mark.slow),
        pytest.param(f"l.k < r.k AND {NEAR}", "inner", marks=pytest.mark.slow),
        (f"l.k > r.k + 26 AND {NEAR}", "left"),  # right rows are in all cells
        pytest.param(f"l.k = r.k AND {NEAR}", "full", marks=pytest.mark.slow),
        pytest.param(f"l.k = r.k AND {NEAR}", "right", marks=pytest.mark.slow),
        pytest.param(f"l.k > r.k + 26 AND {NEAR}", "left_semi", marks=pytest.mark.slow),
        pytest.param(f"l.k = r.k AND {NEAR}", "left_anti", marks=pytest.mark.slow),
    ],
)
def test_stored_rows_and_later_ones(on: str, how: str, spark: SparkSession, place: Path, tmp_path: Path) -> None:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)

    def run(inputs: list[DataFrame], name: str, cells: int) -> DataFrame:
        marked = [frame.withWatermark("ts", "5 seconds") for frame in inputs] if NEAR in on else inputs
        joined = dovetail.join(*marked, on, how=how, state_dir=str(tmp_path / f"state-{name}"), cells=cells)
        if "stored" in joined.columns:
            joined = joined.where(not_of_before(how))
        writer = joined.writeStream.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)
        dovetail.finish(writer.start(str(tmp_path / f"out-{name}")))
        return spark.read.parquet(str(tmp_path / f"out-{name}"))

    before = ids(run([reader.parquet(str(place / "old" / side)) for side in SIDES], "before", 2))
    stored = spark.read.format("dovetail-state").option("table", "rows").option("checkpoint", str(tmp_path / "before"))
    inputs = []
    for side in SIDES:
        rows = stored.option("input", side).load(str(tmp_path / "state-before")).dropDuplicates(["row_number"])
        assert 0 < rows.count() < ROWS // 2  # some have expired or have no key
        rows.drop("cell", "row_number").withColumn("stored", F.lit(True)).write.parquet(str(tmp_path / side))
        seeded = spark.readStream.schema(f"{SCHEMA}, settled boolean, stored boolean").parquet(str(tmp_path / side))
        live = reader.parquet(str(place / "new" / side)).withColumns({"settled": F.lit(False), "stored": F.lit(False)})
        inputs.append(seeded.unionByName(live))
    after = ids(run(inputs, "after", 3))
    left, right = (spark.read.schema(SCHEMA).parquet(*(str(place / h / s) for h in ("old", "new"))) for s in SIDES)
    right = right.withColumnRenamed("id", "id_right")
    expected = ids(left.alias("l").join(right.alias("r"), F.expr(on), how))
    last = ROWS - 1  # the last row stays
    expected = Counter({row: n for row, n in expected.items() if row not in [(last, None), (None, last), (last,)]})
    assert before + after == expected
    assert before
    assert after
