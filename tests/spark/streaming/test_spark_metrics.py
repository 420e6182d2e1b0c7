"""Figures of stream joins in Spark's own metrics, from which its sinks read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.patience import wait_until

import dovetail
from dovetail.core.figures import FIGURES
from dovetail.spark.streaming.spark_metrics import published

DASHBOARD = Path(__file__).parents[3] / "examples" / "dashboards" / "streams.json"
OF_MICRO_BATCHES = {"rows", "micro_batches", "micro_batch_ms"}


@pytest.mark.spark
@pytest.mark.usefixtures("two_partitions")
def test_a_join_is_a_source_of_spark_until_its_query_ends(spark: SparkSession, tmp_path: Path) -> None:
    for side in "lr":
        (tmp_path / side).mkdir()
        for number in range(2):
            pq.write_table(pa.table({"k": range(50)}), tmp_path / side / f"{number}.parquet")
    reader = spark.readStream.schema("k long").option("maxFilesPerTrigger", 1)
    left, right = (reader.parquet(str(tmp_path / side)) for side in "lr")
    for _ in range(2):
        dovetail.spark.publish_metrics(spark)
    joined = dovetail.join(left, right, "l.k = r.k", state_dir=tmp_path / "state")
    writer = joined.writeStream.format("noop").queryName("pairs")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        wait_until(lambda: published(spark).get("dovetail.pairs", {}).get("micro_batches") == 2)
        figures = published(spark)["dovetail.pairs"]
        assert (figures["results"], figures["rows"]) == (200, 200)  # sums over both micro-batches
        assert figures["cells"] == 2
        assert figures.keys() - OF_MICRO_BATCHES <= FIGURES.keys()
    finally:
        query.stop()
    wait_until(lambda: not published(spark))


def test_the_dashboard_shows_figures_that_exist() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    named = {name for text in expressions for name in re.findall(r"_dovetail_\.\*_(\w+)_Value", text)}
    assert named <= FIGURES.keys() | OF_MICRO_BATCHES
    assert {"results", "state_bytes", "resident_rows", "late_rows"} <= named
