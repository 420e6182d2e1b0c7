"""Joins of streams whose condition bounds event time: every micro-batch against Spark's own stream-stream join.

Both joins are in one query, so that they have the same watermark. Where Spark wants an equality and there is none, it
gets one that always holds; left_anti, which it does not have, is what its left join gives without a partner. Keys are
not null: Spark's full join of streams takes two nulls for equal. Filters are no inequalities: Spark would take their
constants for times.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it
from tests.effort import ALL

import dovetail

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "id bigint, k bigint, v double, ts timestamp, one bigint"
FILES, ROWS = 8, 12
AT_ONCE = 6  # scenarios in a query
OUTER = ("left", "right", "full")
HOWS = ("inner", *OUTER, "left_semi", "left_anti")
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"

BOUNDS = {
    "after": "r.ts BETWEEN l.ts AND l.ts + INTERVAL 20 SECONDS",
    "around": "r.ts > l.ts - INTERVAL 15 SECONDS AND r.ts < l.ts + INTERVAL 15 SECONDS",
    "same": "l.ts = r.ts",
    "apart": "l.ts >= r.ts + INTERVAL 5 SECONDS AND l.ts <= r.ts + INTERVAL 25 SECONDS AND l.v < r.v",
    "filtered": "r.ts BETWEEN l.ts AND l.ts + INTERVAL 20 SECONDS AND l.id % 3 != 0 AND r.id % 4 != 1",
}


class Scenario(NamedTuple):
    bounds: str
    how: str
    equal: bool  # the condition has an equality besides the times

    @property
    def name(self) -> str:
        return f"{self.bounds} {self.how} {'equal' if self.equal else 'times only'}"


class Marks(NamedTuple):
    """A way to set watermarks: the delay of each input, and the policy."""

    delays: tuple[str | None, str | None]
    policy: str = "min"


MARKS = {
    "both": Marks(("10 seconds", "10 seconds")),
    "different": Marks(("0 seconds", "25 seconds")),
    "latest": Marks(("5 seconds", "15 seconds"), "max"),
    "left": Marks(("8 seconds", None)),
    "right": Marks((None, "8 seconds")),
}

SCENARIOS = [
    Scenario(bounds, how, equal)
    for bounds in BOUNDS
    for how in HOWS
    for equal in ((True, False) if bounds != "same" else (True,))
]


def write_stream(directory: Path, rng: random.Random) -> None:
    """Files that come 10 seconds apart, with late rows in them; some are empty, the last one is far ahead."""
    directory.mkdir()
    first = 0
    for number in range(FILES):
        rows = 0 if rng.random() < 0.15 else ROWS
        at = 10 * number if number < FILES - 1 else 500
        times = [
            START + timedelta(seconds=at + rng.randrange(-25 if rng.random() < 0.3 else 0, 12)) for _ in range(rows)
        ]
        columns = {
            "id": pa.array(range(first, first + rows), pa.int64()),
            "k": pa.array([rng.choice([0, 1, 2]) for _ in range(rows)], pa.int64()),
            "v": pa.array([rng.random() for _ in range(rows)], pa.float64()),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "one": pa.array([1] * rows, pa.int64()),
        }
        first += rows
        path = directory / f"{number}.parquet"
        pq.write_table(pa.table(columns), path)
        os.utime(path, (number + 1, number + 1))  # Spark reads the oldest first


class Streams(NamedTuple):
    spark: SparkSession
    directory: Path

    def frame(self, side: str, delay: str | None) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        frame = reader.parquet(str(self.directory / side))
        return frame if delay is None else frame.withWatermark("ts", delay)


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    directory = tmp_path_factory.mktemp("bounded")
    rng = random.Random(4)
    write_stream(directory / "l", rng)
    write_stream(directory / "r", rng)
    return Streams(spark, directory)


def on_of(scenario: Scenario) -> str:
    return BOUNDS[scenario.bounds] + (" AND l.k = r.k" if scenario.equal else "")


def by_spark(streams: Streams, scenario: Scenario, marks: Marks) -> DataFrame:
    """Spark's own join, as pairs of row numbers."""
    left, right = (streams.frame(side, delay).alias(side) for side, delay in zip("lr", marks.delays, strict=True))
    anti = scenario.how == "left_anti"
    joined = left.join(right, F.expr(f"l.one = r.one AND {on_of(scenario)}"), "left" if anti else scenario.how)
    right_id = F.lit(None).cast("bigint") if scenario.how == "left_semi" else F.col("r.id")
    pairs = joined.select(F.lit("spark"), F.lit(scenario.name), F.col("l.id"), right_id)
    return pairs.where(F.col("r.id").isNull()) if anti else pairs


def by_dovetail(streams: Streams, scenario: Scenario, marks: Marks, state: Path, **options: object) -> DataFrame:
    left, right = (streams.frame(side, delay) for side, delay in zip("lr", marks.delays, strict=True))
    name = scenario.name.replace(" ", "_")
    joined = dovetail.join(left, right, on_of(scenario), scenario.how, metrics=name, state_dir=str(state), **options)
    names = [column for column in joined.columns if column.startswith("id")]
    right_id = F.col(names[1]) if len(names) > 1 else F.lit(None).cast("bigint")
    return joined.select(F.lit("dovetail"), F.lit(scenario.name), F.col(names[0]), right_id)


def play(streams: Streams, scenarios: list[Scenario], marks: Marks, place: Path, **options: object) -> None:
    """All scenarios in one query; results of each micro-batch must be the same."""
    spark = streams.spark
    spark.conf.set(POLICY, marks.policy)
    found: list[Counter[tuple[str, str, int | None, int | None]]] = []
    try:
        joins = [by_spark(streams, scenario, marks) for scenario in scenarios]
        joins += [by_dovetail(streams, scenario, marks, place / "state", **options) for scenario in scenarios]
        together = reduce(DataFrame.unionAll, joins)
        writer = together.writeStream.foreachBatch(lambda batch, _: found.append(Counter(map(tuple, batch.collect()))))
        writer.trigger(availableNow=True).option("checkpointLocation", str(place / "check")).start().awaitTermination()
    finally:
        spark.conf.unset(POLICY)
    assert len(found) > FILES  # a micro-batch more, for the last watermark
    for number, results in enumerate(found):
        for scenario in scenarios:
            ours, theirs = (
                Counter({row[2:]: times for row, times in results.items() if row[:2] == (engine, scenario.name)})
                for engine in ("dovetail", "spark")
            )
            assert ours == theirs, (
                scenario.name,
                number,
                sorted((ours - theirs), key=str),
                sorted(theirs - ours, key=str),
            )
    for scenario in scenarios:
        assert any(row[1] == scenario.name for results in found for row in results), scenario


def allowed(scenario: Scenario, marks: Marks) -> bool:
    """Outer joins need to know when their rows leave: by a watermark of the other input."""
    if None not in marks.delays:
        return True
    return scenario.how in ("inner", "left_semi")


@pytest.mark.parametrize("name", list(MARKS) if ALL else ["latest"])
def test_every_micro_batch_is_that_of_spark(streams: Streams, tmp_path: Path, name: str) -> None:
    marks = MARKS[name]
    scenarios = [scenario for scenario in SCENARIOS if allowed(scenario, marks)]
    parts = -(-len(scenarios) // AT_ONCE)
    for part in range(parts if ALL else 1):
        play(streams, scenarios[part::parts], marks, tmp_path / str(part))
