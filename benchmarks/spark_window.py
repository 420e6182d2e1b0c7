"""Windowed joins on Structured Streaming, two cores: against a pipeline with the same input and output but no join.

Both streams are read from files of equal size, one of each per micro-batch. Timings are those that Spark reports for
micro-batches after the window has filled; an empty stateful micro-batch is the minimum latency.
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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count
from pyspark.sql.functions import sum as sum_of

import dovetail
from dovetail.kernels.compiling import kernel
from dovetail.spark.session.session import local_session
from dovetail.window import Window

NOISE = 6.0  # of y around x, for about one match; found by trial
ON = "l.x < r.x AND l.y > r.y"
SCHEMA = "id bigint, x double, y double"
PAIRS = "id bigint, x double, y double, id_right bigint, x_right double, y_right double"

FEW = 256  # for at most this many rows per side, all pairs are compared

Timed = tuple[bool, float]
Keys = NDArray[np.float64]  # x and y


@dataclass(frozen=True, slots=True)
class Streams:
    spark: SparkSession
    place: Path
    window: Window
    matches: int
    filling: int  # micro-batches until the window is full
    pairs: int  # within the window
    before: int  # those of them whose right row arrives before the left one


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
            tables[side].append(table)
            pq.write_table(table, path)
            os.utime(path, (number, number))  # Spark reads the oldest first
    left, right = (_keys(pa.concat_tables(side)) for side in tables.values())
    half = rows // 2
    too_old = _count_before(left, right, half)
    return Streams(
        spark,
        place,
        dovetail.window(rows=rows, slide=slide),
        matches,
        rows // batch + 1,
        _count_before(left, right, -half) - too_old,
        _count_before(left, right, 0) - too_old,
    )


def _keys(table: pa.Table) -> Keys:
    return np.stack([table["x"].to_numpy(), table["y"].to_numpy()])


def _count_before(left: Keys, right: Keys, more_than: int = 0) -> int:
    """The number of pairs whose right row number is smaller than the left one by more than `more_than`.

    Rows of both streams arrive in turn, the left one first, so `right` is before `left` if its number is smaller.
    Divides and conquers without listing the pairs, since there may be more than a hundred billion.
    """
    if more_than < 0:
        return _count_all(left, right[:, :-more_than]) + _count_before(left, right[:, -more_than:])
    left = left[:, more_than:]
    size = max(left.shape[1], right.shape[1])
    if size <= FEW:
        (lx, ly), (rx, ry) = left[:, :, None], right[:, None]
        return int(np.tril((lx < rx) & (ly > ry), -1).sum())
    half = size // 2
    return (
        _count_before(left[:, :half], right[:, :half])
        + _count_before(left[:, half:], right[:, half:])
        + _count_all(left[:, half:], right[:, :half])
    )


def _count_all(left: Keys, right: Keys) -> int:
    """The number of all pairs, by a sweep along x."""
    left, right = (side[:, np.argsort(-side[0])] for side in (left, right))
    ascending = np.sort(right[1])
    ranks, below = (np.searchsorted(ascending, side[1]) for side in (right, left))  # among equal values, the first
    reach = np.searchsorted(-right[0], -left[0])
    return int(_sweep(ranks, reach, below))


@kernel
def _sweep(ranks: NDArray[np.int64], reach: NDArray[np.int64], below: NDArray[np.int64]) -> int:
    """The number of the first `reach` ranks that are less than `below`, summed over all left rows; `reach` ascends.

    Ranks are counted in a Fenwick tree.
    """
    counts = np.zeros(len(ranks) + 1, np.int64)
    added, pairs = 0, 0
    for left in range(len(reach)):
        while added < reach[left]:
            place = ranks[added] + 1
            while place < len(counts):
                counts[place] += 1
                place += place & -place
            added += 1
        place = below[left]
        while place > 0:
            pairs += counts[place]
            place -= place & -place
    return pairs


def dovetail_pairs(data: Streams) -> Timed:
    joined = dovetail.join(*_read(data), ON, window=data.window, state_dir=str(data.place / "state"))
    return _timed(data, joined.observe("answer", count("*")), data.pairs)


def dovetail_counts(data: Streams) -> Timed:
    wanted = {"n": "count(*)", "most": "max(r.y)"}
    joined = dovetail.aggregate(*_read(data), ON, wanted, window=data.window, state_dir=str(data.place / "state"))
    return _timed(data, joined.observe("answer", sum_of("n")), data.before)


def pairs_without_a_join(data: Streams) -> Timed:
    """For each row, emit as many rows as it has matches with earlier rows."""

    matches = data.matches  # so that the function does not capture the session

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
    """Whether a join found this many pairs, and the median time of a micro-batch with a full window."""
    checkpoint = tempfile.mkdtemp(dir=data.place)
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    spent = [p["durationMs"]["triggerExecution"] / 1000 for p in progress[data.filling :]]
    found = [p["observedMetrics"]["answer"][0] for p in progress] if pairs is not None else []
    return pairs is None or sum(found) == pairs, statistics.median(spent)
