"""A typical user script: it creates a session, then joins tables and streams.

    python worker_python_job.py MASTER PLACE

It runs with another `python3` on the PATH. Writes the number of pairs of the joins, or Dovetail's error message.
"""

import json
import sys
from pathlib import Path

from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

import dovetail
from dovetail.spark.session.java import ensure_java


def main(master: str, place: Path) -> None:
    ensure_java()
    builder = SparkSession.builder.remote("local[1]") if master == "connect" else SparkSession.builder.master(master)
    spark = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1").getOrCreate()
    numbers = spark.range(10).toDF("k")
    said: list[int | str] = []
    ranges = numbers.selectExpr("k AS s", "k + 2 AS e")
    try:
        said.append(dovetail.join(numbers, ranges, "l.k >= r.s AND l.k < r.e").count())
        said.append(dovetail.join(numbers, numbers, "l.k < r.k").count())
        numbers.write.parquet(str(place / "numbers"))
        stream = spark.readStream.schema("k bigint").parquet(str(place / "numbers"))
        joined = dovetail.join(
            stream, stream, "l.k < r.k", window=dovetail.window(rows=100), state_dir=str(place / "state")
        )
        writer = joined.writeStream.format("parquet").option("path", str(place / "pairs")).trigger(availableNow=True)
        writer.option("checkpointLocation", str(place / "checkpoint")).start().awaitTermination()
        said.append(spark.read.parquet(str(place / "pairs")).count())
    except dovetail.DovetailError as error:
        said.append(f"{type(error).__name__}: {error}")
    except IllegalArgumentException as error:  # raised while a query runs
        said.append(str(error))
    (place / "said.json").write_text(json.dumps(said))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
