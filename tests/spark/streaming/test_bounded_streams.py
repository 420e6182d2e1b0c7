"""Joins of streams whose condition bounds event time: every micro-batch against Spark's own stream-stream join.

Both joins are in one query, so that they have the same watermark. If there is no equality, Spark, which requires one,
gets one that always holds. left_anti, which Spark does not support, is replaced by its left join, filtered to rows
without a partner. Keys are not null, because Spark's full join of streams treats two nulls as equal. Filters are not
inequalities, because Spark would interpret their constants as times.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import ALL

import dovetail
from dovetail.errors import PlanError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "id bigint, k bigint, v double, ts timestamp, one bigint"
FILES, ROWS = 8, 12
AT_ONCE = 6  # scenarios per query
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


Results = Counter[tuple[str, str, int | None, int | None]]
"""Rows of a micro-batch: the engine, the scenario, and a row of each side."""


class Scenario(NamedTuple):
    bounds: str
    how: str
    equal: bool  # whether the condition also has an equality

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
    """Files that are 10 seconds apart, with late rows; some are empty, and the last one is far ahead."""
    directory.mkdir()
    first = 0
    for number in range(FILES):
        is_last = number == FILES - 1
        rows = 0 if rng.random() < 0.15 and not is_last else ROWS
        at = 500 if is_last else 10 * number
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


def by_dovetail(streams: Streams, scenario: Scenario, marks: Marks, state: Path) -> DataFrame:
    left, right = (streams.frame(side, delay) for side, delay in zip("lr", marks.delays, strict=True))
    name = scenario.name.replace(" ", "_")
    joined = dovetail.join(left, right, on_of(scenario), scenario.how, metrics=name, state_dir=str(state))
    names = [column for column in joined.columns if column.startswith("id")]
    right_id = F.col(names[1]) if len(names) > 1 else F.lit(None).cast("bigint")
    return joined.select(F.lit("dovetail"), F.lit(scenario.name), F.col(names[0]), right_id)


def play(streams: Streams, scenarios: list[Scenario], marks: Marks, place: Path) -> None:
    """All scenarios in one query; results of each micro-batch must be the same."""
    spark = streams.spark
    spark.conf.set(POLICY, marks.policy)
    found: list[Results] = []
    try:
        joins = [by_spark(streams, scenario, marks) for scenario in scenarios]
        joins += [by_dovetail(streams, scenario, marks, place / "state") for scenario in scenarios]
        run(reduce(DataFrame.unionAll, joins), place / "check", found)
    finally:
        spark.conf.unset(POLICY)
    compare(found, scenarios)


def run(frame: DataFrame, checkpoint: Path, found: list[Results]) -> None:
    writer = frame.writeStream.foreachBatch(lambda batch, _: found.append(Counter(map(tuple, batch.collect()))))
    writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start().awaitTermination()


def compare(found: list[Results], scenarios: list[Scenario]) -> None:
    for number, results in enumerate(found):
        for scenario in scenarios:
            ours, theirs = (
                Counter({row[2:]: times for row, times in results.items() if row[:2] == (engine, scenario.name)})
                for engine in ("dovetail", "spark")
            )
            differing = sorted(ours - theirs, key=str), sorted(theirs - ours, key=str)
            assert ours == theirs, (scenario.name, number, *differing)
    for scenario in scenarios:
        known = any(row[1] == scenario.name for results in found for row in results)
        assert known or scenario.how == "left_anti", scenario  # every left row may have a partner


def allowed(scenario: Scenario, marks: Marks) -> bool:
    """Outer and semi joins need to know when rows expire, from a watermark of the other input, or from equal times."""
    if None not in marks.delays or scenario.bounds == "same":
        return True
    return scenario.how == "inner" or (scenario.how == "left_semi" and marks.delays[1] is not None)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", list(MARKS) if ALL else ["latest"])
def test_every_micro_batch_is_that_of_spark(streams: Streams, tmp_path: Path, name: str) -> None:
    marks = MARKS[name]
    scenarios = [scenario for scenario in SCENARIOS if allowed(scenario, marks)]
    parts = -(-len(scenarios) // AT_ONCE)
    for part in range(parts if ALL else 1):
        play(streams, scenarios[part::parts][: AT_ONCE if ALL else 3], marks, tmp_path / str(part))


@pytest.mark.slow
def test_a_restart_goes_on_where_it_was(streams: Streams, tmp_path: Path) -> None:
    """Run the first half of the files, then a new query with the same checkpoint and all files."""
    marks = MARKS["both"]
    scenarios = [Scenario("around", "full", True), Scenario("apart", "left_anti", False)]
    some = Streams(streams.spark, tmp_path / "files")
    found: list[Results] = []
    for first, last in ((0, FILES // 2), (FILES // 2, FILES)):
        for side in "lr":
            (some.directory / side).mkdir(parents=True, exist_ok=True)
            for number in range(first, last):
                shutil.copy2(streams.directory / side / f"{number}.parquet", some.directory / side)
        joins = [by_spark(some, scenario, marks) for scenario in scenarios]
        joins += [by_dovetail(some, scenario, marks, tmp_path / "state") for scenario in scenarios]
        run(reduce(DataFrame.unionAll, joins), tmp_path / "check", found)
    compare(found, scenarios)


@pytest.mark.slow
def test_an_aggregation_by_time_follows(streams: Streams, tmp_path: Path) -> None:
    """Results are never behind the watermark; the time of the other side is no longer an event time."""
    left, right = (streams.frame(side, "10 seconds") for side in "lr")
    on = BOUNDS["after"] + " AND l.k = r.k"
    joined = dovetail.join(left, right, on, state_dir=str(tmp_path / "state"))
    marked = {field.name for field in joined.schema if "spark.watermarkDelayMs" in field.metadata}
    assert marked == {"ts_right"}
    pairs = by_spark(streams, Scenario("after", "inner", True), MARKS["both"])
    counted = joined.groupBy(F.window("ts_right", "10 seconds")).count()
    rows: list[Counter[tuple[datetime, int]]] = []
    together = counted.select(F.col("window.start"), "count")
    writer = together.writeStream.foreachBatch(lambda batch, _: rows.append(Counter(map(tuple, batch.collect()))))
    writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "check")).start().awaitTermination()
    found: list[Results] = []
    run(pairs, tmp_path / "pairs", found)
    times = {row["id"]: row["ts"] for row in streams.spark.read.parquet(str(streams.directory / "r")).collect()}
    expected: Counter[datetime] = Counter()
    for results in found:
        for (_, _, _, right_id), count in results.items():
            at = times[right_id]
            expected[at.replace(second=at.second // 10 * 10, microsecond=0)] += count
    counts = {start: count for batch in rows for start, count in batch}
    newest = [max(row["ts"] for row in streams.spark.read.parquet(str(streams.directory / s)).collect()) for s in "lr"]
    closed = {start for start in expected if start < min(newest) - timedelta(seconds=20)}
    assert closed
    assert {start: counts.get(start) for start in closed} == {start: expected[start] for start in closed}


def with_windows(streams: Streams, side: str, delay: str) -> DataFrame:
    """Counts by window and key, and a number for each."""
    counts = streams.frame(side, delay).groupBy(F.window("ts", "10 seconds"), "k").agg(F.count("*").alias("n"))
    return counts.withColumn("id", F.expr("10 * unix_seconds(window.start) + k"))


WINDOWS = {
    "windows": "l.window = r.window AND l.k = r.k",
    "ends": "l.window.end = r.window.end AND l.k = r.k AND l.n < r.n",
    "next": "r.window.end > l.window.end AND r.window.end <= l.window.end + INTERVAL 10 SECONDS AND l.k = r.k",
}


@pytest.mark.parametrize(
    ("name", "hows"),
    [
        ("windows", ("left",)),
        ("windows", ("inner", "full")),
        ("ends", ("inner",)),
        ("next", ("inner",)),
    ],
)
@pytest.mark.slow
def test_windows_as_event_time(streams: Streams, tmp_path: Path, name: str, hows: tuple[str, ...]) -> None:
    """Aggregated streams, whose watermark refers to the end of the window."""
    on = WINDOWS[name]
    joins = []
    for how in hows:
        left, right = with_windows(streams, "l", "10 seconds"), with_windows(streams, "r", "5 seconds")
        joined = dovetail.join(left, right, on, how, metrics=how, state_dir=str(tmp_path / "state"))
        assert bool(joined.schema["window"].metadata.get("spark.watermarkDelayMs")) == (name != "next")
        joins.append(joined.select(F.lit("dovetail"), F.lit(f"{name} {how} equal"), "id", "id_right"))
        theirs = left.alias("l").join(right.alias("r"), F.expr(on), how)
        joins.append(theirs.select(F.lit("spark"), F.lit(f"{name} {how} equal"), "l.id", "r.id"))
    found: list[Results] = []
    writer = reduce(DataFrame.unionAll, joins).writeStream.foreachBatch(
        lambda batch, _: found.append(Counter(map(tuple, batch.collect())))
    )
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "check")).start()
    query.awaitTermination()
    compare(found, [Scenario(name, how, True) for how in hows])
    kept = [query.lastProgress.observedMetrics[how].window_rows for how in hows]
    assert name == "next" or not any(kept)  # partners arrive in the same micro-batch, and are dropped with it


def test_a_window_and_its_time(streams: Streams) -> None:
    """`window_time` has the watermark of the window; the condition shows which of the two is meant."""
    left, right = (with_windows(streams, side, "10 seconds").withColumn("at", F.window_time("window")) for side in "lr")
    plan = str(dovetail.explain(left, right, "l.at = r.at AND l.k = r.k"))
    assert "state      rows of l are kept until the watermark reaches l.at" in plan
    plan = str(dovetail.explain(left, right, "l.window = r.window"))
    assert "state      rows of l are kept until the watermark reaches l.window_end" in plan


@pytest.mark.slow
def test_duplicates_are_dropped_before(streams: Streams, tmp_path: Path) -> None:
    on = BOUNDS["after"] + " AND l.k = r.k"
    joins = []
    for engine in ("dovetail", "spark"):
        left, right = (streams.frame(side, "10 seconds").dropDuplicatesWithinWatermark(["k", "ts"]) for side in "lr")
        if engine == "spark":
            joined = left.alias("l").join(right.alias("r"), F.expr(on)).select("l.id", "r.id")
        else:
            joined = dovetail.join(left, right, on, state_dir=str(tmp_path / "state")).select("id", "id_right")
        joins.append(joined.select(F.lit(engine), F.lit("after inner equal"), "*"))
    found: list[Results] = []
    run(reduce(DataFrame.unionAll, joins), tmp_path / "check", found)
    compare(found, [Scenario("after", "inner", True)])


def test_what_explain_says(streams: Streams) -> None:
    left, right = streams.frame("l", "10 seconds"), streams.frame("r", "1 hour")
    on = "l.v < r.v AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 20 SECONDS"
    plan = str(dovetail.explain(left, right, on, "full"))
    assert "operator   spo: sorted runs of both streams, within what the condition and the watermarks leave" in plan
    assert "delay      1:00:00 for r.ts: its watermark" in plan
    assert "state      rows of l are kept until the watermark reaches l.ts + 0:00:20.001000" in plan
    assert "state      rows of r are kept until the watermark reaches r.ts + 0:00:00.001000" in plan
    plan = str(dovetail.explain(streams.frame("l", None), right, on))
    assert "state      rows of r are never removed: no watermark of the other input bounds their time" in plan
    plan = str(dovetail.explain(left, right, "l.k = r.k"))
    assert "advice     state grows without bound" in plan


def test_state_in_a_temporary_directory_is_told(streams: Streams, caplog: pytest.LogCaptureFixture) -> None:
    left, right = streams.frame("l", None), streams.frame("r", None)
    dovetail.join(left, right, "l.k = r.k")
    assert "a temporary directory. Give state_dir=" in caplog.text


def test_outer_joins_that_would_wait_for_ever_are_refused(streams: Streams) -> None:
    left, right = streams.frame("l", None), streams.frame("r", "10 seconds")
    on = "l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 20 SECONDS"
    assert dovetail.explain(left, right, on, "left").how == "left"
    with pytest.raises(PlanError, match="how='right': a row of r without a partner is never emitted"):
        dovetail.explain(left, right, on, "right")
    with pytest.raises(PlanError, match="how='left' on streams needs to know when a row can no longer find"):
        dovetail.explain(left, right, "l.k = r.k", "left")


def test_rows_that_may_have_waited_for_long_have_no_event_time(streams: Streams) -> None:
    """An aggregation by time after these joins would drop the rows as late."""
    left, right, other = (streams.frame(side, "10 seconds") for side in "lrl")
    several = dovetail.multijoin({"a": left, "b": right, "c": other}, "a.k = b.k AND b.k = c.k", end="available")
    for joined in (dovetail.join(left, right, "l.k = r.k"), several):
        assert not any("spark.watermarkDelayMs" in field.metadata for field in joined.schema)
