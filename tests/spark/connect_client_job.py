"""A client of a Connect server that has Dovetail. The client does not know about it.

A script, because a process can have only one kind of session:

    python connect_client_job.py <remote> <directory>
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

QUERY = "SELECT p.id, b.band FROM points p {} JOIN bands b ON p.x BETWEEN b.lo AND b.hi"
PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.materialized_view
def points() -> DataFrame:
    return spark.range(200).selectExpr("id", "id * 7919 % 1009 AS x")


@dp.materialized_view
def bands() -> DataFrame:
    return spark.range(150).selectExpr("id AS band", "id * 104729 % 1009 AS lo", "id * 104729 % 1009 + 30 AS hi")


@dp.materialized_view
def hits() -> DataFrame:
    p, b = spark.read.table("points"), spark.read.table("bands")
    return p.join(b, (p.x >= b.lo) & (p.x <= b.hi)).select("id", "band")
"""
SPEC = """
name: ranges
storage: {0}/storage
libraries:
  - glob:
      include: transformations/**
"""


def rows_of(frame: DataFrame) -> Counter[str]:
    return Counter(map(str, map(tuple, frame.collect())))


def is_ours(frame: Any) -> bool:
    return "DovetailJoin" in frame._explain_string()


def main(remote: str, place: Path) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    spark.range(200).selectExpr("id", "id * 7919 % 1009 AS x").createOrReplaceTempView("points")
    bands = spark.range(150).selectExpr("id AS band", "id * 104729 % 1009 AS lo", "id * 104729 % 1009 + 30 AS hi")
    bands.createOrReplaceTempView("bands")
    found = {}
    for how in ("", "LEFT", "FULL"):
        query = spark.sql(QUERY.format(how))
        assert is_ours(query)
        found[how] = rows_of(query)
    p, b = spark.table("points"), spark.table("bands")
    joined = p.join(b, (p.x >= b.lo) & (p.x <= b.hi)).select("id", "band")
    assert is_ours(joined)
    assert rows_of(joined) == found[""]
    spark.conf.set("spark.dovetail.enabled", "false")
    for how, rows in found.items():
        query = spark.sql(QUERY.format(how))
        assert not is_ours(query)
        assert rows_of(query) == rows
    try:
        from pyspark.pipelines.cli import run
    except ImportError:  # before 4.1
        return
    spark.stop()
    (place / "transformations").mkdir()
    (place / "transformations" / "ranges.py").write_text(PIPELINE)
    (place / "spark-pipeline.yml").write_text(SPEC.format(place.as_uri()))
    os.environ["SPARK_REMOTE"] = remote
    run(spec_path=place / "spark-pipeline.yml", full_refresh=[], full_refresh_all=False, refresh=[], dry=False)
    spark = SparkSession.builder.remote(remote).getOrCreate()
    assert rows_of(spark.table("hits")) == found[""]
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
