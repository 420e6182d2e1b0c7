"""Joins of streams as recordings, from Spark's reports of each micro-batch."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from tests.patience import wait_until

import dovetail
from dovetail.monitoring.snapshot import DONE, FAILED
from dovetail.monitoring.spark_streams import lines

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

FILES, ROWS = 2, 200
SCHEMA = "id bigint, k bigint"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("listening")
    rng = np.random.default_rng(0)
    for side in ("orders", "payments"):
        (directory / side).mkdir()
        for number in range(FILES):
            table = pa.table({"id": np.arange(ROWS) + number * ROWS, "k": rng.integers(0, 80, ROWS)})
            pq.write_table(table, directory / side / f"{number}.parquet")
    return directory


def streams(spark: SparkSession, place: Path) -> tuple[DataFrame, DataFrame]:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(place / "orders")), reader.parquet(str(place / "payments"))


def tables(spark: SparkSession, place: Path) -> tuple[DataFrame, DataFrame]:
    return spark.read.parquet(str(place / "orders")), spark.read.parquet(str(place / "payments"))


def started(joined: DataFrame, name: str, checkpoint: Path, **trigger: Any) -> Any:
    writer = joined.writeStream.format("noop").queryName(name).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start() if trigger else writer.start()


class SlowListener(StreamingQueryListener):
    """Blocks Spark's notifications to other listeners until it is released."""

    def __init__(self) -> None:
        self.allowed = threading.Event()

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        self.allowed.wait()

    def onQueryIdle(self, event: Any) -> None: ...
    def onQueryTerminated(self, event: Any) -> None: ...


@pytest.mark.one_in(3)
def test_what_spark_reports_after_the_query_has_ended(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    joined = dovetail.join(*streams(spark, place), "l.k = r.k", state_dir=str(tmp_path / "state"), cells=2)
    slow = SlowListener()
    spark.streams.addListener(slow)
    try:
        with dovetail.listen(spark) as listening:
            started(joined, "late", tmp_path / "checkpoint", availableNow=True).awaitTermination()
            assert listening.recordings == []
            slow.allowed.set()
    finally:
        slow.allowed.set()
        spark.streams.removeListener(slow)
    (recording,) = listening.recordings
    assert recording.outcome == DONE
    assert recording.latest.results == dovetail.count(*tables(spark, place), "l.k = r.k")


@pytest.mark.one_in(3)
def test_lines_of_a_query_that_has_to_wait_for_rows(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    """Spark reports idle time with the number of the next micro-batch."""
    for side in ("orders", "payments"):
        (tmp_path / side).mkdir()
    joined = dovetail.join(*streams(spark, tmp_path), "l.k = r.k", state_dir=str(tmp_path / "state"), cells=2)
    query = started(joined, "waits", tmp_path / "checkpoint")
    printed = lines(query)
    next(printed)  # the heading
    wait_until(lambda: query.recentProgress, "a report of idleness")
    for side in ("orders", "payments"):
        shutil.copy(place / side / "0.parquet", tmp_path / side / "0.parquet")
    try:
        first = next(printed)
    finally:
        query.stop()
    assert first.split()[0] == "0"
    assert int(first.split()[1]) > 0


@pytest.mark.one_in(3)
def test_a_recording_for_each_join(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    recordings = tmp_path / "recordings"
    options: dict[str, Any] = {"algorithm": "diner", "memory": "1MB", "cells": 2, "end": "available"}
    joined = dovetail.join(*streams(spark, place), "l.k = r.k", state_dir=str(tmp_path / "state"), **options)
    with dovetail.listen(spark, recordings) as listening:
        other = started(streams(spark, place)[0], "no_join", tmp_path / "other", availableNow=True)
        other.awaitTermination()
        query = started(joined, "listened/to", tmp_path / "checkpoint", availableNow=True)
        dovetail.finish(query)
    (recording,) = listening.recordings
    assert recording.outcome == DONE
    assert recording.heading is not None
    assert recording.heading.title == "orders ⋈ payments"
    assert recording.heading.on == "query listened/to"
    last = recording.latest
    assert last.results == dovetail.count(*tables(spark, place), "l.k = r.k")
    assert last.found["arriving"] > 0
    assert [(source.name, source.rows, source.state) for source in last.sources] == [
        *(("orders", FILES * ROWS, "ended"), ("payments", FILES * ROWS, "ended"))
    ]
    # Cells that finish in the micro-batch of the last rows have no separate clean-up.
    assert "arriving" in {noted.moment.phase for noted in recording.moments}
    assert any((noted.moment.resident_rows or 0) > 0 for noted in recording.moments)
    (file,) = recordings.iterdir()
    assert file.name.startswith("listened_to-dovetail-")
    assert dovetail.Recording.read(file).latest.results == last.results
    page = dovetail.report(recording, tmp_path / "run.html").read_text()
    assert "orders ⋈ payments" in page


@pytest.mark.one_in(3)
def test_a_windowed_join_and_a_query_that_fails(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    def broken(batch: DataFrame, number: int) -> None:
        if number == 1:
            raise ValueError("the sink is full")
        batch.count()

    joined = dovetail.join(
        *streams(spark, place),
        "l.k < r.k",
        window=dovetail.window(rows=100),
        state_dir=str(tmp_path / "state"),
        cells=2,
    )
    with dovetail.listen(spark) as listening:
        query = (
            joined.writeStream.foreachBatch(broken).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        )
        with pytest.raises(Exception, match="the sink is full"):
            query.awaitTermination()
    (recording,) = listening.recordings
    assert recording.outcome == FAILED
    assert "the sink is full" in recording.error
    assert recording.latest.results > 0
    assert recording.latest.resident_rows is not None
