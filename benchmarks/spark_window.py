"""Windowed joins on Structured Streaming, two cores: against a pipeline with the same rows in and out and no join.

Both streams come in files of equally many rows, one of each per micro-batch. What is timed are the micro-batches after
the window has filled, as Spark reports them; an empty stateful micro-batch is the floor of the latency.
"""

from __future__ import annotations

import atexit
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import dovetail
from dovetail.spark.session.session import local_session
from dovetail.window import Window

NOISE = 6.0  # of y around x, for about one match, found by trial
ON = "l.x < r.x AND l.y > r.y"
SCHEMA = "id bigint, x double, y double"
PAIRS = "id bigint, x double, y double, id_right bigint, x_right double, y_right double"

Timed = tuple[bool, float]


@dataclass(frozen=True, slots=True)
class Streams:
    spark: SparkSession
    place: Path
    window: Window
    matches: int
    filling: int  # micro-batches until the window is full
    pairs: int  # results of the join, by DuckDB


def streams(rows: int, slide: int, batch: int, batches: int, matches: int) -> Streams:
    """Files of half a batch for each side."""
    spark = local_session("windows", conf={"spark.sql.shuffle.partitions": "2"})
    place = Path(tempfile.mkdtemp(prefix="dovetail-windows-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    rng = np.random.default_rng(0)
    noise = NOISE * matches / (rows / 2)
    tables: dict[str, list[pa.Table]] = {"left": [], "right": []}
    for side in ("left", "right"):
        (place / side).mkdir()
        for number in range(batches):
            x = rng.random(batch // 2)
            path = place / side / f"{number:04d}.parquet"
            table = pa.table({"id": np.arange(batch // 2), "x": x, "y": x + noise * rng.random(batch // 2)})
            tables[side].append(table.append_column("batch", pa.array(np.full(batch // 2, number))))
            pq.write_table(table, path)
            os.utime(path, (number, number))  # Spark reads the oldest first
    left, right = (pa.concat_tables(side) for side in tables.values())
    window = dovetail.window(rows=rows, slide=slide)
    return Streams(spark, place, window, matches, rows // batch + 1, _count_pairs(left, right, rows // batch))


def _count_pairs(left: pa.Table, right: pa.Table, apart: int) -> int:
    """Pairs within the window: a slide is a micro-batch, so that it ends between two of them."""
    with duckdb.connect() as connection:
        connection.register("l", left)
        connection.register("r", right)
        where = f"l.batch BETWEEN r.batch - {apart} AND r.batch + {apart}"
        (pairs,) = connection.sql(f"SELECT count(*) FROM l JOIN r ON {ON} WHERE {where}").fetchall()[0]
        return int(pairs)


def dovetail_pairs(data: Streams) -> Timed:
    joined = dovetail.join(*_read(data), ON, window=data.window, state_dir=str(data.place / "state"))
    return _timed(data, joined, data.pairs)


def dovetail_counts(data: Streams) -> Timed:
    wanted = {"n": "count(*)", "most": "max(r.y)"}
    joined = dovetail.aggregate(*_read(data), ON, wanted, window=data.window, state_dir=str(data.place / "state"))
    return _timed(data, joined, data.pairs)


def pairs_without_a_join(data: Streams) -> Timed:
    """As many rows out of each row as it has matches with rows before it."""

    matches = data.matches  # workers must not ask for the session beside it

    def widen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(matches):
                yield pa.RecordBatch.from_arrays([*batch.columns, *batch.columns], names=PAIRS.split(" ")[::2])

    left, right = _read(data)
    return _timed(data, left.unionAll(right).mapInArrow(widen, PAIRS))


def rows_without_a_join(data: Streams) -> Timed:
    def as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    left, right = _read(data)
    return _timed(data, left.unionAll(right).mapInArrow(as_they_are, SCHEMA))


def _read(data: Streams) -> tuple[DataFrame, DataFrame]:
    reader = data.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(data.place / "left")), reader.parquet(str(data.place / "right"))


def _timed(data: Streams, frame: DataFrame, pairs: int | None = None) -> Timed:
    """Whether so many pairs were found, if it is a join, and the median time of a micro-batch with a full window."""
    checkpoint = tempfile.mkdtemp(dir=data.place)
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    spent = [p["durationMs"]["triggerExecution"] / 1000 for p in progress[data.filling :]]
    found = [p["observedMetrics"]["dovetail"]["matches"] for p in progress] if pairs is not None else []
    return pairs is None or sum(found) == pairs, statistics.median(spent)
