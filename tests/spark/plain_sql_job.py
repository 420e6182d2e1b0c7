"""`dovetail.sql` over Spark Connect, compared with Spark's own. A script: a process can have one kind of session."""

import os
import re
import sys
import warnings
from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import dovetail
from dovetail.spark.session.java import ensure_java
from dovetail.spark.session.session import DAEMON

QUERIES = [
    "SELECT band % 10 AS g, count(*), sum(x) FROM points JOIN bands ON x BETWEEN lo AND hi GROUP BY g ORDER BY g",
    "SELECT p.id, b.band FROM points p LEFT JOIN bands b ON p.x BETWEEN b.lo AND b.hi WHERE p.s <> 'p{3}'",
    "SELECT id FROM points p WHERE NOT EXISTS (SELECT 1 FROM bands WHERE x > lo AND x < hi AND band < 9)",
    (
        "WITH q AS (SELECT * FROM bands WHERE band < 30) SELECT c.id, d.band "
        "FROM (SELECT p.id, q.lo FROM points p JOIN q ON p.x < q.lo) c JOIN bands d ON c.lo < d.lo AND d.band < 5"
    ),
]


def rows_of(frame: DataFrame) -> Counter[str]:
    return Counter(map(str, map(tuple, frame.collect())))


def main(place: Path) -> None:
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.remote("local[2]").config("spark.python.daemon.module", DAEMON).getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    points = spark.sql("SELECT id, id * 7919 % 1009 AS x, concat('p', id % 7) AS s, id % 13 AS k FROM range(200)")
    bands = spark.sql("SELECT id AS band, id * 104729 % 1009 AS lo, id * 104729 % 1009 + 30 AS hi FROM range(150)")
    points.createOrReplaceTempView("points")
    bands.createOrReplaceTempView("bands")
    for query in QUERIES:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            found = dovetail.sql(spark, query)
        assert re.search("MapInArrow|cells#", found._explain_string(extended=True)), query
        assert rows_of(found) == rows_of(spark.sql(query)), query
    few = dovetail.sql("SELECT p.id, b.band FROM some p JOIN bands b ON p.x < b.lo", some=points.where("id < 9"))
    assert rows_of(few) == rows_of(spark.sql("SELECT p.id, b.band FROM points p JOIN bands b ON x < lo WHERE id < 9"))
    times = "SELECT id AS n, timestamp_seconds(id) AS at FROM range(100)"
    spark.sql(times).repartition(2).write.parquet(str(place / "rows"))
    stream = (
        spark.readStream.schema("n bigint, at timestamp").parquet(str(place / "rows")).withWatermark("at", "1 hour")
    )
    stream.createOrReplaceTempView("arrivals")
    query = (
        "SELECT a.n, b.n AS m FROM {0} a JOIN {0} b ON a.n <> b.n AND a.at < b.at AND b.at <= a.at + INTERVAL 3 SECONDS"
    )
    joined = dovetail.sql(spark, query.format("arrivals"))
    writer = joined.writeStream.format("parquet").option("path", str(place / "out")).trigger(availableNow=True)
    writer.option("checkpointLocation", str(place / "checkpoint")).start().awaitTermination()
    expected = spark.sql(query.format(f"parquet.`{place / 'rows'}`"))
    assert rows_of(spark.read.parquet(str(place / "out"))) == rows_of(expected)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
