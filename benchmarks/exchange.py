"""Passes rows into a stateful streaming operator and out again: packed batches against plain rows."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from dovetail.condition import parse
from dovetail.core.rows import Side
from dovetail.routing.routers import HashRouter
from dovetail.spark.exchange.packing import PACKED, from_bytes, packer, to_bytes
from dovetail.spark.session.session import local_session
from dovetail.spark.streaming.streams import unpack

CELLS = 2
WARM_UP = 1000  # rows of the first micro-batch
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64())])


class Stream(NamedTuple):
    spark: SparkSession
    directory: Path
    files: int


class CountRows(StatefulProcessor):
    """Passes rows on and keeps their number: the least work that a stateful operator can do."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "rows bigint")

    def count(self, rows: int) -> None:
        before = self._seen.get()
        self._seen.update(((before[0] if before is not None else 0) + rows,))

    def close(self) -> None:
        pass


class PlainRows(CountRows):
    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        seen = 0
        for frame in rows:
            seen += len(frame)
            yield frame[["k", "v"]]
        self.count(seen)


class PackedRows(CountRows):
    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        seen = 0
        for frame in rows:
            for payload in frame["payload"]:
                batch = from_bytes(payload)
                seen += batch.num_rows
                yield pd.DataFrame({"payload": [to_bytes(batch).to_pybytes()]})
        self.count(seen)


def stream(rows: int, files: int) -> Stream:
    spark = local_session("exchange", conf={"spark.sql.shuffle.partitions": str(CELLS)})
    directory = Path(tempfile.mkdtemp(prefix="dovetail-exchange-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    rng = np.random.default_rng(0)
    for start, portions in enumerate(
        [np.array_split(np.arange(WARM_UP), files), np.array_split(np.arange(rows), files)]
    ):
        for number, keys in enumerate(portions):
            path = directory / f"{start}-{number}.parquet"
            pq.write_table(pa.table({"k": keys, "v": rng.random(len(keys))}, SCHEMA), path)
            os.utime(path, (start, start))  # Spark reads older files first
    return Stream(spark, directory, files)


def unpack_rows(data: Stream) -> tuple[int, float]:
    rows = _source(data).withColumn("cell", F.pmod(F.xxhash64("k"), F.lit(CELLS)).cast("int"))
    passed = rows.groupBy("cell").transformWithStateInPandas(PlainRows(), "k bigint, v double", "Append", "None")
    return _run(passed)


def packed(data: Stream) -> tuple[int, float]:
    router = HashRouter(parse("l.k = r.k", SCHEMA, SCHEMA), CELLS)
    rows = _source(data).mapInArrow(packer(Side.LEFT, router, SCHEMA), PACKED)
    passed = rows.groupBy("cell").transformWithStateInPandas(PackedRows(), "payload binary", "Append", "None")
    return _run(passed.mapInArrow(unpack, "k bigint, v double"))


def _source(data: Stream) -> DataFrame:
    reader = data.spark.readStream.schema("k bigint, v double").option("maxFilesPerTrigger", data.files)
    return reader.parquet(str(data.directory))


def _run(rows: DataFrame) -> tuple[int, float]:
    """Drain the stream once, with a new checkpoint. Returns the rows emitted and the seconds of the large micro-batch.

    The first micro-batch is small: it includes starting the query, its state store and its workers.
    """
    place = tempfile.mkdtemp(prefix="dovetail-checkpoint-")
    counted = rows.observe("out", F.count(F.lit(1)).alias("rows"))
    try:
        query = (
            counted.writeStream.format("noop").option("checkpointLocation", place).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        batches = query.recentProgress
        rows_out = sum(progress.observedMetrics["out"]["rows"] for progress in batches)
        large = max(batches, key=lambda progress: progress.numInputRows)
        return rows_out, large.durationMs["triggerExecution"] / 1000
    finally:
        shutil.rmtree(place, ignore_errors=True)
