"""Joins of tables that do not fit in the driver: only plans, names and counts pass through it.

A script with a driver of 512 MB, where results may take at most 8 MB, on a cluster (see separate_disks.py).
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.spark.session.separate_disks import HOST, cluster
from tests.spark.session.separate_disks_job import stopping

import dovetail
from dovetail.spark.session.session import local_session

ROWS, PER_ORDER, FILES = 1_500_000, 4, 8
DRIVER_BYTES = 512 << 20
SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "512m",
    "spark.driver.maxResultSize": "8m",
    "spark.executor.memory": "768m",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.parquet.compression.codec": "uncompressed",
}
ON = "l.id = r.order_id"


def main(place: Path) -> None:
    with cluster(place) as master, stopping(local_session("small driver", master, SETTINGS)) as spark:
        files = place / "shared"
        orders = spark.range(0, ROWS // PER_ORDER, 1, FILES).selectExpr("id", "id * 7 % 1000 AS c")
        items = spark.range(0, ROWS, 1, FILES).selectExpr(
            f"id DIV {PER_ORDER} AS order_id",
            "id AS n",
            "concat_ws('', transform(sequence(1, 12), i -> md5(string(id * i)))) AS pad",
        )
        for name, frame in (("orders", orders), ("items", items)):
            frame.write.parquet(str(files / name))
        size = sum(file.stat().st_size for file in (files / "items").iterdir())
        assert size > DRIVER_BYTES, size
        orders, items = (spark.read.parquet(str(files / name)) for name in ("orders", "items"))
        expected = digest(orders.alias("l").join(items.alias("r"), F.expr(ON)))
        before = peak_bytes()
        by_cells = dovetail.join(orders, items, f"{ON} AND l.c >= 0", cells=8)
        assert digest(by_cells) == expected
        along = dovetail.join(orders, items, ON, algorithm="diag")
        assert dovetail.write(along, files / "along").rows == ROWS
        assert digest(spark.read.parquet(str(files / "along"))) == expected
        assert dovetail.write(by_cells, files / "cells").rows == ROWS
        early = dovetail.progressive(orders, items, ON, algorithm="diag", work_dir=str(files / "work"))
        assert sum(step.batch.num_rows for step in early) == ROWS
        assert stream(orders, items, files) == expected
        assert peak_bytes() - before < DRIVER_BYTES // 2, (before, peak_bytes())


def stream(orders: DataFrame, items: DataFrame, files: Path) -> Any:
    spark = orders.sparkSession
    left, right = (
        spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 2).parquet(str(files / name))
        for name, frame in (("orders", orders), ("items", items))
    )
    joined = dovetail.join(left, right, ON, state_dir=str(files / "state"))
    sink = joined.writeStream.format("parquet").option("checkpointLocation", str(files / "checkpoint"))
    query = sink.trigger(availableNow=True).start(str(files / "streamed"))
    query.awaitTermination()
    return digest(spark.read.parquet(str(files / "streamed")))


def digest(frame: DataFrame) -> Any:
    """The result of a join, condensed into one row."""
    made = [F.count(F.lit(1)), F.bit_xor(F.xxhash64("id", "c", "n", "pad"))]
    return tuple(frame.agg(*made).collect()[0])


def peak_bytes() -> int:
    """The peak memory of this process, the Python side of the driver."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    main(Path(sys.argv[1]))
