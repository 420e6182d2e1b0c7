"""Queries on a join that need all of its 20 columns, two, two of some rows, or none, on Spark. CPU of driver, JVM and
workers together.

query     part of the query, whose optimizer determines the needed columns and rows
columns   joined at the call, with the columns named in `columns=`
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

import dovetail
from dovetail.spark.session.session import local_session

ON = "l.x BETWEEN r.lo AND r.hi"
TWO = ["p3", "q3"]
SOME = "p0 < 100 AND q0 < 500"  # a tenth of the points, half of the bands
SPREAD = 10**9
AT_ONCE = "spark.dovetail.joinAtOnce"
TICKS = os.sysconf("SC_CLK_TCK")

Timed = tuple[int, float]


class Frames(NamedTuple):
    points: DataFrame
    bands: DataFrame


def frames(points: int, bands: int, pairs: int) -> Frames:
    """Ten columns on each side, in Parquet files; eight of them are payload."""
    spark = local_session("benchmark", conf={"spark.sql.shuffle.partitions": "8"})
    rng = np.random.default_rng(0)
    directory = Path(tempfile.mkdtemp(prefix="dovetail-benchmark-"))
    length = pairs * SPREAD // (points * bands)
    low = rng.integers(0, SPREAD, bands)
    keys = {
        "p": {"id": np.arange(points), "x": rng.integers(0, SPREAD, points)},
        "q": {"lo": low, "hi": low + rng.integers(0, 2 * length + 1, bands)},
    }
    read = []
    for name, columns in keys.items():
        rows = len(next(iter(columns.values())))
        payload = {f"{name}{i}": rng.random(rows) if i % 2 else rng.integers(0, 1000, rows) for i in range(8)}
        pq.write_table(pa.table({**columns, **payload}), directory / f"{name}.parquet", row_group_size=1 << 17)
        read.append(spark.read.parquet(str(directory / f"{name}.parquet")))
    dovetail.join(read[0].limit(1000), read[1].limit(1000), ON).count()  # workers and compiled kernels
    return Frames(read[0], read[1])


def columns_two(data: Frames) -> Timed:
    return _at_once(data, lambda: to_nowhere(dovetail.join(data.points, data.bands, ON, columns=TWO)))


def query_all(data: Frames) -> Timed:
    return timed(lambda: to_nowhere(_join(data)))


def query_two(data: Frames) -> Timed:
    return timed(lambda: to_nowhere(_join(data).select(*TWO)))


def query_where(data: Frames) -> Timed:
    return timed(lambda: to_nowhere(_join(data).where(SOME).select(*TWO)))


def query_count(data: Frames) -> Timed:
    return timed(lambda: _join(data).count())


def _join(data: Frames) -> DataFrame:
    joined: DataFrame = dovetail.join(data.points, data.bands, ON)
    return joined


def to_nowhere(frame: DataFrame) -> int:
    seen = Observation()
    frame.observe(seen, F.count(F.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])


def _at_once(data: Frames, run: Callable[[], int]) -> Timed:
    conf = data.points.sparkSession.conf
    conf.set(AT_ONCE, "true")
    try:
        return timed(run)
    finally:
        conf.unset(AT_ONCE)


def timed(run: Callable[[], int]) -> Timed:
    started = sum(_cpu_seconds())
    rows = run()
    return rows, sum(_cpu_seconds()) - started


def _cpu_seconds() -> Iterator[float]:
    """CPU seconds of this process and all its descendants, running or ended."""
    parents, spent = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS
    below = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= grown
    return (spent[pid] for pid in below if pid in spent)
