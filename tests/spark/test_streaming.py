from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import dovetail
from dovetail.errors import InputError, PlanError

pytestmark = pytest.mark.spark

SCHEMAS = {"left": "k bigint, name string, at timestamp", "right": "k bigint, tags map<string,int>"}


class Streams:
    """Two directories of files, read as streams, joined into a third."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark = spark
        self.place = place
        self.files = 0
        for side in SCHEMAS:
            (place / side).mkdir()

    def add(self, files: int, rows: int = 200) -> None:
        """More files on both sides; null keys, duplicates and rows without a partner among them."""
        for _ in range(files):
            rng = np.random.default_rng(self.files)
            for side in SCHEMAS:
                keys = [None if k == 0 else k for k in rng.integers(0, 300, rows).tolist()]
                columns = {"k": pa.array(keys, pa.int64())}
                if side == "left":
                    columns["name"] = pa.array([f"n{k}" for k in keys])
                    columns["at"] = pa.array(rng.integers(0, 10**15, rows), pa.timestamp("us", "UTC"))
                else:
                    tags = [[("a", self.files), ("b", None)]] * rows
                    columns["tags"] = pa.array(tags, pa.map_(pa.string(), pa.int32()))
                pq.write_table(pa.table(columns), self.place / side / f"{self.files:03d}.parquet")
            self.files += 1

    def stream(self, side: str) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMAS[side]).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.place / side))

    def start(self, on: str = "l.k = r.k", **options: object) -> StreamingQuery:
        options.setdefault("state_dir", str(self.place / "state"))
        joined = dovetail.join(self.stream("left"), self.stream("right"), on, **options)
        writer = joined.writeStream.format("parquet").option("path", str(self.place / "results"))
        writer = writer.option("checkpointLocation", str(self.place / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    def run(self, on: str = "l.k = r.k", **options: object) -> str | None:
        """Run until all files are read; what went wrong, if anything did."""
        query = self.start(on, **options)
        try:
            query.awaitTermination()
        except Exception as error:
            return str(error)
        return None

    def check(self) -> None:
        """The sink has what Spark's own join of the files at rest gives."""
        left, right = (self.spark.read.schema(SCHEMAS[side]).parquet(str(self.place / side)) for side in SCHEMAS)
        expected = left.alias("l").join(right.alias("r"), left.k == right.k).collect()
        found = self.spark.read.parquet(str(self.place / "results")).collect()
        assert Counter(map(str, map(tuple, found))) == Counter(map(str, map(tuple, expected)))

    def segments(self) -> list[Path]:
        return sorted((self.place / "state").rglob("*.arrow"))


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Streams:
    return Streams(spark, tmp_path)


def test_a_join_of_streams_goes_on_after_a_restart_and_notices_damage(streams: Streams) -> None:
    streams.add(4)
    assert streams.run() is None
    streams.check()
    streams.add(2)
    assert streams.run() is None
    streams.check()

    streams.add(1)
    error = streams.run("l.k + 1 = r.k")
    assert error is not None
    assert "was made by another join" in error

    segment = streams.segments()[0]
    data = segment.read_bytes()
    segment.unlink()
    error = streams.run()
    assert error is not None
    assert "is missing" in error
    segment.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    error = streams.run()
    assert error is not None
    assert "is damaged" in error

    segment.write_bytes(data)
    assert streams.run() is None
    streams.check()


def test_segments_are_merged_and_swept(streams: Streams) -> None:
    streams.add(12, rows=20)
    assert streams.run(cells=1) is None
    streams.check()
    # Eight of a size become one, so that at most eight of the smallest and one larger are named; a generation that was
    # dropped last may still wait for its sweep.
    assert len(streams.segments()) < 2 * 12


def test_any_sink_and_our_figures_in_the_progress(streams: Streams) -> None:
    streams.add(2)
    joined = dovetail.join(streams.stream("left"), streams.stream("right"), ["k"], state_dir=str(streams.place / "s"))
    batches: list[int] = []
    query = (
        joined.writeStream.foreachBatch(lambda frame, _: batches.append(frame.count()))
        .option("checkpointLocation", str(streams.place / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sum(batches) > 0
    assert sum(p.observedMetrics["dovetail"]["results"] for p in query.recentProgress) >= sum(batches)


def test_what_cannot_be_joined_is_refused_before_it_starts(streams: Streams, spark: SparkSession) -> None:
    left, right = streams.stream("left"), streams.stream("right")
    with pytest.raises(PlanError, match="has no equality between the two streams"):
        dovetail.join(left, right, "l.k < r.k")
    with pytest.raises(PlanError, match="one input is a stream and the other a table"):
        dovetail.join(left, spark.range(3), "l.k = r.id")
    with pytest.raises(InputError, match="cannot hold join state"):
        dovetail.join(left, right, ["k"], state_dir="/proc/nowhere")
    with pytest.raises(InputError, match="file system that all workers mount"):
        dovetail.join(left, right, ["k"], state_dir="s3://bucket/state")
    with pytest.raises(InputError, match="no such option"):
        dovetail.join(left, right, ["k"], stat_dir="x")
