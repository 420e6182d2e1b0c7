"""Joins over Spark Connect, compared with Spark's own. A script: a process can have only one kind of session."""

import logging
import os
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import dovetail
from dovetail.errors import PlanError
from dovetail.monitoring.snapshot import DONE
from dovetail.spark.session.java import ensure_java
from dovetail.spark.session.session import DAEMON


def same(found: DataFrame, expected: DataFrame) -> None:
    ours, theirs = (Counter(map(str, map(tuple, frame.collect()))) for frame in (found, expected))
    assert ours == theirs, f"{sum(ours.values())} rows, Spark has {sum(theirs.values())}"
    assert sum(ours.values()) > 0


def main(place: Path, tries_all: bool) -> None:
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.remote("local[2]").config("spark.python.daemon.module", DAEMON).getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    left = spark.range(500).selectExpr("id % 50 AS k", "id AS a", "map('x', array(id)) AS `deep one`")
    right = spark.range(300).selectExpr("cast(id % 70 AS int) AS k", "cast(id AS string) AS b")
    aliased = left.alias("l"), right.alias("r")

    same(dovetail.join(left, right, "l.k = r.k"), aliased[0].join(aliased[1], F.expr("l.k = r.k")))
    if tries_all:
        condition = "l.k < r.k AND l.a % 7 = 3 OR r.b LIKE '1%' AND l.a = 5"
        same(dovetail.join(left, right, condition), aliased[0].join(aliased[1], F.expr(condition)))
    bound = (left.k == right.k) & (F.abs(left.a - right.b.cast("bigint")) <= 40)
    same(dovetail.join(left, right, bound), left.join(right, bound))
    if tries_all:
        more(spark, left, right)
    assert "Spark's own join" in str(dovetail.explain(left, right, ["k"]))
    assert "shj" in str(dovetail.explain(left, right, ["k"], cells=2))
    nothing = spark.createDataFrame([], "k int, b string")  # Spark knows that it is empty and never calls us
    assert dovetail.join(left, nothing, ["k"]).count() == dovetail.join(nothing, left, "l.k < r.k").count() == 0

    for name, frame in (("left", left), ("right", right)):
        frame.repartition(2).write.parquet(str(place / name))
    files = [spark.read.parquet(str(place / name)) for name in ("left", "right")]
    if tries_all:
        same(dovetail.join(files[0], files[1], "l.k = r.k"), aliased[0].join(aliased[1], F.expr("l.k = r.k")))
    with pytest.raises(PlanError, match="a Connect session does not show which files a DataFrame reads"):
        dovetail.join(files[0], files[1], ["k"], algorithm="diag")
    dovetail.write(left, place / "written")
    same(spark.read.parquet(str(place / "written")), left)
    streams = [
        spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(str(place / name))
        for name, frame in (("left", left), ("right", right))
    ]
    joined = dovetail.join(streams[0], streams[1], "l.k = r.k", state_dir=str(place / "state"))
    with dovetail.listen(spark) as listening:
        query = (
            joined.writeStream.format("parquet")
            .option("path", str(place / "results"))
            .option("checkpointLocation", str(place / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        deadline = time.monotonic() + 600  # listeners are notified with a delay
        while not any(r.outcome == DONE for r in listening.recordings) and time.monotonic() < deadline:
            time.sleep(0.05)
    expected = aliased[0].join(aliased[1], F.expr("l.k = r.k"))
    same(spark.read.parquet(str(place / "results")), expected)
    assert [r.latest.results for r in listening.recordings] == [expected.count()]
    probed = dovetail.join(streams[0], right, "l.k > r.k + 40", "left", state_dir=str(place / "state"))
    writer = probed.writeStream.format("parquet").option("path", str(place / "probed")).trigger(availableNow=True)
    writer.option("checkpointLocation", str(place / "probed_checkpoint")).start().awaitTermination()
    same(spark.read.parquet(str(place / "probed")), aliased[0].join(aliased[1], F.expr("l.k > r.k + 40"), "left"))
    late_rows(spark, place / "windowed", [("1 minute", 9)] * tries_all + [("20 seconds", 4)])
    spark.stop()


def more(spark: SparkSession, left: DataFrame, right: DataFrame) -> None:
    """Functions that only Spark supports, unusual names and types, heavy keys."""
    soundex = "soundex(r.b) = soundex(cast(l.a AS string)) AND levenshtein(cast(l.a AS string), r.b) < 2"
    same(dovetail.join(left, right, soundex), left.alias("l").join(right.alias("r"), F.expr(soundex)))
    odd = spark.range(40).selectExpr("id AS `a.b`", "id % 4 AS `q``t`", "INTERVAL '1' MONTH * id AS i", "array() AS v")
    condition = "l.`a.b` = r.`q``t` AND l.i = r.i OR l.`a.b` > r.`a.b`"
    printed = [F.col(f"c{n}").cast("string") for n in range(8)]
    found, expected = dovetail.join(odd, odd, condition), odd.alias("l").join(odd.alias("r"), F.expr(condition))
    same(*(frame.toDF(*(f"c{n}" for n in range(8))).select(*printed) for frame in (found, expected)))
    heavy = spark.range(3000).selectExpr("IF(id < 2000, 7, id) AS k", "id AS c")
    assert "heavy keys that are split: 1" in str(dovetail.explain(heavy, right, ["k"], cells=4))
    same(
        dovetail.join(heavy, right, "l.k = r.k", cells=4), heavy.alias("l").join(right.alias("r"), F.expr("l.k = r.k"))
    )


def late_rows(spark: SparkSession, place: Path, cases: list[tuple[str, int]]) -> None:
    """Watermarks are found in the schema; rows are late if behind the watermark of the previous micro-batch."""
    times = spark.range(1).selectExpr("1 AS k", "timestamp '2024-01-01 00:01:00' AS ts")
    late = times.withColumn("ts", F.expr("ts - INTERVAL 50 SECONDS"))
    for number, frame in enumerate((times, times, late)):
        frame.coalesce(1).write.mode("append").parquet(str(place / "rows"))
        newest = max((place / "rows").glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (number, number))  # Spark reads the oldest file first
    stream = spark.readStream.schema(times.schema).option("maxFilesPerTrigger", 1).parquet(str(place / "rows"))
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("dovetail.spark").addHandler(handler)
    window = dovetail.window(time="60 seconds", slide="10 seconds", on="ts")
    for delay, pairs in cases:
        left, right = (stream.withWatermark("ts", delay) for _ in range(2))
        assert "for l.ts: its watermark" in str(dovetail.explain(left, right, "l.k = r.k", window=window))
        joined = dovetail.join(left, right, "l.k = r.k", window=window, state_dir=str(place / "state"))
        writer = joined.writeStream.format("parquet").option("path", str(place / delay)).queryName(delay)
        writer = writer.option("checkpointLocation", str(place / delay / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()
        assert spark.read.parquet(str(place / delay)).count() == pairs
    deadline = time.monotonic() + 600
    while not told and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [line.split(" Allow")[0] for line in told] == [
        "query 20 seconds, join dovetail, micro-batch 2: 2 late rows were dropped."
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]), "all" in sys.argv[2:])
