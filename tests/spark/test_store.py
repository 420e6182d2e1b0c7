"""Everything on Spark with state, waves, copies and results in an object store whose requests sometimes fail."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.patience import wait_until
from tests.spark.streaming.killing import Job
from tests.storage.s3_server import ACCESS_KEY, SECRET_KEY, Faults, S3Server, s3_server

import dovetail
from dovetail.errors import InputError, StateError
from dovetail.spark import written_files
from dovetail.spark.session import shared_directory
from dovetail.spark.session.shared_directory import SharedDirectory, working_directory
from dovetail.spark.streaming.state_dir import state_directory, table_directory
from dovetail.storage.open_store import open_store
from dovetail.storage.owned_place import give_up

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

FAULTY = {"error": 0.05, "drop": 0.03, "lose": 0.05, "slow": 0.02}
FILES, ROWS = 3, 200
SCHEMA = "id bigint, k bigint, x double, kind string"
Pairs = Counter[tuple[Any, ...]]


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def server(shared_server: S3Server) -> Iterator[S3Server]:
    """A server with faults; checks that stored objects do not contain secrets."""
    shared_server.objects.clear()
    shared_server.failed = 0
    shared_server.faults = Faults(1, **FAULTY)
    yield shared_server
    for found in shared_server.objects.values():
        assert SECRET_KEY.encode() not in found.data
        assert ACCESS_KEY.encode() not in found.data


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of both sides; the last of each has a row that marks the end."""
    directory = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(0)
    for side in "lr":
        (directory / side).mkdir()
        for number in range(FILES):
            ids = np.arange(number * ROWS, (number + 1) * ROWS)
            columns = {"id": ids, "k": rng.integers(0, 60, ROWS), "x": rng.random(ROWS), "kind": ["row"] * ROWS}
            table = pa.table(columns)
            if number == FILES - 1:
                end = pa.table({"id": [-1], "k": [0], "x": [0.5], "kind": ["end"]}, table.schema)
                table = pa.concat_tables([table, end])
            path = directory / side / f"{number}.parquet"
            pq.write_table(table, path)
            os.utime(path, (number, number))  # Spark reads the oldest file first
    return directory


def streams(spark: SparkSession, place: Path) -> tuple[DataFrame, DataFrame]:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(place / "l")), reader.parquet(str(place / "r"))


def tables(spark: SparkSession, place: Path) -> tuple[DataFrame, DataFrame]:
    left, right = (spark.read.schema(SCHEMA).parquet(str(place / side)).where("kind = 'row'") for side in "lr")
    return left, right


def pairs(frame: DataFrame) -> Pairs:
    return Counter(map(tuple, frame.select("id", "id_right").collect()))


def start(joined: DataFrame, tmp_path: Path, *, available: bool = False) -> StreamingQuery:
    writer = joined.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer = writer.trigger(availableNow=True) if available else writer
    return writer.start(str(tmp_path / "results"))


@pytest.mark.one_in(4)
def test_a_progressive_join_of_streams_is_restarted(
    spark: SparkSession, server: S3Server, place: Path, tmp_path: Path
) -> None:
    on = "l.k = r.k"

    def joined() -> DataFrame:
        options = {"algorithm": "diner", "memory": "1MB", "end": "kind = 'end'", "cells": 2}
        return dovetail.join(*streams(spark, place), on, state_dir=server.uri("state", scheme="s3a"), **options)

    query = start(joined(), tmp_path)
    wait_until(lambda: (query.lastProgress or {"batchId": -1})["batchId"] >= 1, "a micro-batch")
    query.stop()
    state = spark.read.format("dovetail-state")
    assert state.load(server.uri("state")).count() == 2
    rows = state.option("table", "rows").option("input", "left").option("checkpoint", str(tmp_path / "checkpoint"))
    assert 0 < rows.load(server.uri("state")).count() <= FILES * ROWS
    query = start(joined(), tmp_path)
    dovetail.finish(query)
    assert pairs(spark.read.parquet(str(tmp_path / "results"))) == pairs(dovetail.join(*tables(spark, place), on))
    assert server.failed > 5


@pytest.mark.one_in(3)
def test_a_window_and_a_table(spark: SparkSession, server: S3Server, place: Path, tmp_path: Path) -> None:
    """Two joins in one query: in a window that holds everything, then with a table at rest."""
    on = "l.k < r.k AND l.x > r.x + 0.8"
    window = dovetail.window(rows=10_000)
    joined = dovetail.join(*streams(spark, place), on, window=window, state_dir=server.uri("state"), cells=2)
    right = spark.range(0, 10).selectExpr("10 * id AS limit_of", "0.8 + id / 50 AS y")
    with_table = dovetail.join(joined, right, "l.x > r.y AND l.k < r.limit_of", state_dir=server.uri("state"))
    copies = {name.split("/")[1] for name in server.names("state/table-")}
    assert len(copies) == 1
    query = start(with_table, tmp_path, available=True)
    query.awaitTermination()
    left, other = (spark.read.schema(SCHEMA).parquet(str(place / side)) for side in "lr")
    expected = dovetail.join(dovetail.join(left, other, on), right, "l.x > r.y AND l.k < r.limit_of")
    columns = ["id", "id_right", "limit_of"]
    found = spark.read.parquet(str(tmp_path / "results"))
    assert Counter(map(tuple, found.select(columns).collect())) == Counter(
        map(tuple, expected.select(columns).collect())
    )


@pytest.mark.one_in(3)
def test_waves_are_stopped_and_go_on(spark: SparkSession, server: S3Server, place: Path) -> None:
    left, right = tables(spark, place)
    left, right = left.select("id", "k", "x"), right.selectExpr("id AS id_right", "k", "x")
    on = "l.k = r.k AND l.x > r.x"
    truth = Counter(map(tuple, dovetail.join(left, right, on).select("id", "id_right").collect()))
    first = list(dovetail.progressive(left, right, on, cells=8, work_dir=server.uri("waves"), until=10))
    assert first[-1].results < truth.total()
    rest = list(dovetail.progressive(left, right, on, cells=8, work_dir=server.uri("waves")))
    found: Pairs = Counter()
    for step in [*first, *rest]:
        found.update(zip(step.batch["id"].to_pylist(), step.batch["id_right"].to_pylist(), strict=True))
    assert found == truth
    with pytest.raises(StateError, match="belongs to another progressive join") as failure:
        list(dovetail.progressive(left, right, "l.k < r.k", cells=8, work_dir=server.uri("waves")))
    assert SECRET_KEY not in str(failure.value)


@pytest.mark.one_in(3)
def test_write(spark: SparkSession, server: S3Server) -> None:
    frame = spark.range(0, 1000, 1, 3).selectExpr("id", "cast(id AS string) AS s")
    path = server.uri("out")
    assert dovetail.write(frame, path) == (3, 1000)
    assert [written.partition("/out/")[0] for written in written_files(path)] == ["s3://bucket"] * 3
    with pytest.raises(InputError, match=r"^s3://…@bucket/out\S* exists: give another path"):
        dovetail.write(frame, path)
    assert read(server) == Counter(range(1000))
    dovetail.write(frame.where("id < 10"), path, mode="append")
    assert read(server) == Counter(range(1000)) + Counter(range(10))
    dovetail.write(frame.where("id < 0"), server.uri("none"))
    assert len(server.names("none/part-")) == 1
    dovetail.write(frame.where("id < 7"), path, mode="overwrite")
    assert read(server) == Counter(range(7))
    assert not server.names("out/_dovetail-")


def read(server: S3Server) -> Counter[int]:
    """Read like a reader that lists the directory."""
    found = Counter()
    for name in server.names("out/part-"):
        found.update(pq.read_table(pa.BufferReader(server.objects[name].data))["id"].to_pylist())
    return found


def test_a_store_is_tried_out(spark: SparkSession, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_directory, "_is_one_machine", lambda spark: False)
    assert working_directory(spark, server.uri("new"), "Advice.") == SharedDirectory(open_store(server.uri("new")))
    assert not server.names("new")
    elsewhere = server.uri("x").replace("@bucket/", "@nowhere/")
    with pytest.raises(
        InputError, match=r"^s3://…@nowhere/x\S* cannot be written to.*NO_SUCH_BUCKET.*Advice\.$"
    ) as failure:
        working_directory(spark, elsewhere, "Advice.")
    assert SECRET_KEY not in str(failure.value)


def test_plans_do_not_show_secrets(spark: SparkSession, server: S3Server) -> None:
    frame = spark.read.format("dovetail-state").load(server.uri("nothing"))
    plan = frame._jdf.queryExecution().toString()  # type: ignore[attr-defined]
    assert "dovetail-state" in plan
    assert quote(SECRET_KEY, safe="") not in plan


@pytest.mark.one_in(3)
def test_state_lies_beside_the_checkpoints(
    spark: SparkSession, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{server.endpoint}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    spark.conf.set("spark.sql.streaming.checkpointLocation", "s3a://bucket/checkpoints")
    try:
        assert str(state_directory(None, spark)) == "s3a://bucket/checkpoints/dovetail-state"
        assert server.requests["PUT"] > 0
        table = table_directory(None, spark)
        assert str(table.parent) == "s3a://bucket/checkpoints/dovetail-state"
        table.put("x", b"")
        give_up(table)
        assert not server.names("checkpoints/")
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


@pytest.mark.slow
def test_kills_while_requests_fail(server: S3Server, tmp_path: Path) -> None:
    """Repeated kill -9 of the driver: exact results, and no more objects than after an undisturbed run."""
    rng = np.random.default_rng(1)
    tables = []
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        rows = 8000
        tables.append(pa.table({"k": rng.integers(0, 3000, rows), name: np.arange(rows)}))
        for number in range(16):
            pq.write_table(tables[-1].slice(number * 500, 500), tmp_path / name / f"{number}.parquet")
            os.utime(tmp_path / name / f"{number}.parquet", (number, number))
    options = {"on": "l.k = r.k", "cells": 2, "state_dir": server.uri("state")}
    (tmp_path / "join.json").write_text(json.dumps(options))
    job = Job(tmp_path)
    started = time.time()
    try:
        for pause in (0.0, 0.3, 0.7):
            job.kill_jvm(2, pause)
        assert job.run_to_the_end()
    finally:
        job.end()
    both = tables[0].join(tables[1], "k", join_type="inner")
    expected = Counter(zip(both["left"].to_pylist(), both["right"].to_pylist(), strict=True))
    log = [
        json.loads(line)
        for path in (tmp_path / "results" / "_spark_metadata").iterdir()
        if path.name.isdigit() or path.name.endswith(".compact")
        for line in path.read_text().splitlines()[1:]
    ]
    files = {entry["path"].removeprefix("file://") for entry in log}
    found: Pairs = Counter()
    for file in files:
        table = pq.read_table(file)
        found.update(zip(table["left"].to_pylist(), table["right"].to_pylist(), strict=True))
    assert found == expected
    assert server.failed > 20
    assert len(server.names("state/")) <= 2 * (2 * 2 * 3 * 8 + 2 * 8) + 3, f"after {time.time() - started:.0f} s"
    assert SECRET_KEY not in (tmp_path / "job.log").read_text()
