"""Joins of streams: file sources, several micro-batches, restarts, and missing, damaged or foreign state."""

from __future__ import annotations

import json
import shutil
import stat
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import dovetail
from dovetail.errors import InputError, PlanError, StateError
from dovetail.spark.exchange.labels import spark_partition, spread_labels
from dovetail.spark.streaming.state_dir import DEFAULT_PROVIDER, PROVIDER, ROCKSDB_PROVIDER

pytestmark = pytest.mark.spark

SCHEMAS = ("k BIGINT, a BIGINT, name STRING", "k INT, b BIGINT")
FILES = 3  # at first; one more is added later
ROWS = 60
ON = "l.k = r.k"


def write_file(directory: Path, side: int, number: int) -> None:
    """Write one file of one side: few keys, some of them null, one of them in every third row."""
    rng = np.random.default_rng((side, number))
    keys = [7 if i % 3 == 0 else None if i % 11 == 1 else int(rng.integers(0, 40)) for i in range(ROWS)]
    numbers = np.arange(ROWS) + number * ROWS
    if side == 0:
        table = pa.table({"k": pa.array(keys, pa.int64()), "a": numbers, "name": [f"n{i % 4}" for i in range(ROWS)]})
    else:
        table = pa.table({"k": pa.array(keys, pa.int32()), "b": numbers})
    path = directory / "lr"[side]
    path.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path / f"{number:03}.parquet")


def run(writer: DataStreamWriter) -> StreamingQuery:
    query = writer.start()
    query.awaitTermination()
    return query


class Place:
    """The directory of a streaming query."""

    def __init__(self, spark: SparkSession, source: Path, own: Path) -> None:
        self.spark, self.source, self.own = spark, source, own

    def copied(self, own: Path) -> Place:
        """A copy of the query at the same point, which can continue independently. Its sink has only new results."""
        for part in ("checkpoint", "state", "out"):
            shutil.copytree(self.own / part, own / part)
        return Place(self.spark, self.source, own)

    def streams(self, files_at_once: int = 1) -> tuple[DataFrame, DataFrame]:
        reader = self.spark.readStream.option("maxFilesPerTrigger", files_at_once)
        left, right = (reader.schema(SCHEMAS[i]).parquet(str(self.source / "lr"[i])) for i in (0, 1))
        return left, right

    def joined(self, on: Any = ON, **options: Any) -> DataFrame:
        result: DataFrame = dovetail.join(*self.streams(), on, state_dir=str(self.own / "state"), **options)
        return result

    def writer(self, joined: DataFrame) -> DataStreamWriter:
        return joined.writeStream.option("checkpointLocation", str(self.own / "checkpoint")).trigger(availableNow=True)

    def run(self, on: Any = ON, **options: Any) -> StreamingQuery:
        return run(self.writer(self.joined(on, **options)).format("parquet").option("path", str(self.own / "out")))

    def fails(self, on: Any = ON, **options: Any) -> str:
        """Run a query that must fail. Returns the error."""
        with pytest.raises(StreamingQueryException) as failure:
            self.run(on, **options)
        return str(failure.value)

    def results(self) -> Counter[tuple[Any, ...]]:
        """The results according to the sink's log."""
        sink = self.spark.read.schema("k BIGINT, a BIGINT, name STRING, k_right INT, b BIGINT")
        return Counter(map(tuple, sink.parquet(str(self.own / "out")).collect()))

    def expected(self, files: int, condition: str = ON) -> Counter[tuple[Any, ...]]:
        sides = []
        for side in "lr":
            paths = sorted(map(str, (self.source / side).iterdir()))[:files]
            sides.append(self.spark.read.parquet(*paths).alias(side))
        return Counter(map(tuple, sides[0].join(sides[1], F.expr(condition)).collect()))

    def expected_new(self) -> Counter[tuple[Any, ...]]:
        """The results added by the last file."""
        return self.expected(FILES + 1) - self.expected(FILES)

    def segments(self) -> set[str]:
        """All segment files, as cell/name."""
        return {f"{path.parent.name}/{path.name}" for path in self.own.glob("state/*/*/cell-*/*")}

    def manifests(self) -> dict[str, dict[str, Any]]:
        """The committed manifest of every cell, from Spark's state store."""
        store = self.spark.read.format("statestore").option("stateVarName", "manifest")
        rows = store.load(str(self.own / "checkpoint")).collect()
        return {f"cell-{row.key.cell}": json.loads(row.value.manifest) for row in rows}


@pytest.fixture(scope="module")
def first(spark: SparkSession, two_partitions: None, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A query that has joined the first files, in a default Spark session; after it, each side gets one more file."""
    directory = tmp_path_factory.mktemp("streams")
    for number in range(FILES):
        write_file(directory, 0, number)
        write_file(directory, 1, number)
    place = Place(spark, directory, directory / "first")
    spark.conf.set(PROVIDER, DEFAULT_PROVIDER)
    query = place.run()
    assert spark.conf.get(PROVIDER) == ROCKSDB_PROVIDER
    assert len([p for p in query.recentProgress if p.numInputRows]) == FILES
    write_file(directory, 0, FILES)
    write_file(directory, 1, FILES)
    return place


@pytest.mark.one_in(3)
def test_results(first: Place) -> None:
    assert first.results() == first.expected(FILES)


def test_files_that_no_manifest_names_are_swept(first: Place) -> None:
    manifests = first.manifests()
    named = {f"{cell}/{name}" for cell, m in manifests.items() for name in m["segments"]}
    before = {f"{cell}/{name}" for cell, m in manifests.items() for name in m["previous"]}
    assert sum(m["version"] for m in manifests.values()) == 2 * FILES
    assert named <= first.segments() <= named | before


def test_restart_goes_on(first: Place, tmp_path: Path) -> None:
    place = first.copied(tmp_path)
    query = place.run()
    assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [2 * ROWS]
    assert place.results() == first.expected_new()


@pytest.mark.slow
def test_a_sink_that_computes_every_micro_batch_twice(first: Place, tmp_path: Path) -> None:
    seen: Counter[tuple[Any, ...]] = Counter()

    def keep(batch: DataFrame, number: int) -> None:
        batch.count()
        seen.update(map(tuple, batch.collect()))

    place = first.copied(tmp_path / "each")
    run(place.writer(place.joined()).foreachBatch(keep))
    assert seen == first.expected_new()


@pytest.mark.slow
def test_the_memory_sink_and_our_figures_in_the_progress(first: Place, tmp_path: Path, spark: SparkSession) -> None:
    place = Place(spark, first.source, tmp_path / "memory")
    joined = dovetail.join(*place.streams(files_at_once=6), "l.k = r.k", state_dir=str(place.own / "state"))
    query = run(place.writer(joined).format("memory").queryName("seen"))
    assert Counter(map(tuple, spark.table("seen").collect())) == first.expected(FILES + 1)
    assert sum(p.observedMetrics["dovetail"]["results"] for p in query.recentProgress) == spark.table("seen").count()


@pytest.mark.one_in(3)
def test_another_join_on_restart(first: Place, tmp_path: Path) -> None:
    """Rejected at the start, with and without new rows, before any task; the attempts do not lose anything."""
    place = first.copied(tmp_path)
    others = {
        r"condition was 'l.k = r.k' and is now 'l.k = r.k AND l.a < r.b'": {"on": "l.k = r.k AND l.a < r.b"},
        r"how was None and is now 'left'": {"how": "left", "end": "k < 0"},
        r"window was None and is now \[50": {"window": dovetail.window(rows=50)},
        r"limit was None and is now 5": {"limit": 5},
    }
    for rows in ("new ones", "none"):
        for message, options in others.items():
            with pytest.raises(StateError, match=f"was made by another join: .*({message})") as failure:
                place.run(**options)
            assert "java" not in str(failure.value)
        assert not [query for query in place.spark.streams.active if query.isActive]
        place.run()
        assert place.results() == first.expected_new(), rows


@pytest.mark.one_in(3)
def test_state_is_told_apart_by_its_place_and_the_name_of_the_join(first: Place, tmp_path: Path) -> None:
    """Another join of this process has separate state, with any layout; so does a new checkpoint."""
    place = first.copied(tmp_path)
    place.joined("l.k = r.k AND l.a < r.b")  # not started
    place.run()
    assert place.results() == first.expected_new()
    other = Place(place.spark, first.source, tmp_path / "other")
    joined = dovetail.join(*other.streams(20), "l.k = r.k AND l.a < r.b", state_dir=str(place.own / "state"))
    run(other.writer(joined).format("noop"))


@pytest.mark.one_in(3)
def test_segments_that_are_not_there(first: Place, tmp_path: Path) -> None:
    place = first.copied(tmp_path)
    for path in place.own.glob("state/*/*/cell-*/*.arrow"):
        path.unlink()
    why = place.fails()
    assert "StateError" in why
    assert ".arrow is missing" in why
    assert not place.results()


@pytest.mark.slow
def test_two_joins_in_one_query(first: Place, tmp_path: Path, spark: SparkSession) -> None:
    """With expressions that Spark evaluates before and after the join, and a type that Arrow does not support."""
    place = Place(spark, first.source, tmp_path)
    left, right = place.streams(files_at_once=6)
    left = left.selectExpr("*", "make_ym_interval(0, int(a)) AS i", "map(a, timestamp_seconds(a)) AS m")
    state = {"state_dir": str(tmp_path / "state")}
    inner = dovetail.join(
        left, right, "soundex(concat(l.name, l.k)) = soundex(concat('n', r.k)) AND l.k = r.k", **state
    )
    with pytest.raises(PlanError, match="metrics="):
        dovetail.join(inner, right, "l.a = r.b", suffix="_2", **state)
    outer = dovetail.join(
        inner, right, "l.a = r.b AND levenshtein(l.name, r.k) > 1", metrics="outer", suffix="_2", **state
    )
    run(place.writer(outer).format("parquet").option("path", str(tmp_path / "out")))
    tables = [spark.read.parquet(str(first.source / side)) for side in "lr"]
    one = tables[0].selectExpr("*", "make_ym_interval(0, int(a)) AS i", "map(a, timestamp_seconds(a)) AS m")
    one.createOrReplaceTempView("one")
    tables[1].createOrReplaceTempView("other")
    expected = spark.sql(
        "SELECT one.*, x.k, x.b, y.k, y.b FROM one JOIN other x ON one.k = x.k JOIN other y ON one.a = y.b "
        "WHERE soundex(concat(one.name, one.k)) = soundex(concat('n', x.k)) AND levenshtein(one.name, y.k) > 1"
    ).toDF(*outer.columns)
    printed = [f"cast({name} AS STRING)" for name in outer.columns]
    found = spark.read.parquet(str(tmp_path / "out"))
    rows = Counter(map(tuple, found.selectExpr(*printed).collect()))
    assert rows
    assert rows == Counter(map(tuple, expected.selectExpr(*printed).collect()))


# Errors before a query starts.


def test_refusals(first: Place, tmp_path: Path) -> None:
    left, right = first.streams()
    with pytest.raises(PlanError, match="has no equality between the two streams"):
        dovetail.join(left, right, "l.k < r.k")
    with pytest.raises(PlanError, match="cannot run on unbounded streams"):
        dovetail.join(left, right, ON, algorithm="nested_loop")
    (tmp_path / "file").touch()  # a directory without write permission does not stop root
    with pytest.raises(InputError, match="cannot be written to"):
        dovetail.join(left, right, ON, state_dir=str(tmp_path / "file" / "state"))
    with pytest.raises(InputError, match="gopher is not a known file system"):
        dovetail.join(left, right, ON, state_dir="gopher://host/state")


def test_state_goes_beside_the_checkpoints(first: Place, spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.streaming.checkpointLocation", f"file://{tmp_path}")
    try:
        dovetail.join(*first.streams(), ON)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert (tmp_path / "dovetail-state").is_dir()


def test_state_among_temporary_files_is_private(first: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dovetail.join(*first.streams(), ON)
    (state,) = tmp_path.iterdir()
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    state.chmod(0o777)  # as another user might have created it earlier
    with pytest.raises(InputError, match=r"is not safe from other users: .* Give state_dir= "):
        dovetail.join(*first.streams(), ON)


# The partitions of cells.


def test_labels_spread_cells_as_spark_does(spark: SparkSession) -> None:
    for cells, partitions in [(2, 2), (3, 2), (7, 4), (5, 8)]:
        labels = spread_labels(cells, partitions)
        rows = spark.createDataFrame([(label,) for label in labels], "cell INT").repartition(partitions, "cell")
        found = rows.selectExpr("cell", "spark_partition_id() AS p").collect()
        assert {row.cell: row.p for row in found} == {label: spark_partition(label, partitions) for label in labels}
        assert max(Counter(row.p for row in found).values()) == -(-cells // partitions)
