"""Remote sources as Spark tables and streams: real servers on loopback that stall, slow down, die and come back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.sources.proxy import Proxy
from tests.spark.sources.remote_streams import Batches, forget_the_last_commit, rows_of, started, wait_for

import dovetail
from dovetail.errors import InputError
from dovetail.sources.flight_server import TableServer
from dovetail.sources.paced import Paced
from dovetail.spark.versions import HAS_STREAM_OFFSETS
from dovetail.testing.arrival_times import steady

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

ROWS = 6000
ORDERS = pa.table({"id": np.arange(ROWS), "k": np.arange(ROWS) % 700, "pad": [f"{i:050}" for i in range(ROWS)]})
PARCELS = pa.table({"nr": np.arange(ROWS), "k": np.arange(ROWS)[::-1] % 700})
KINDS = pa.table(
    {
        "u1": pa.array([255, None], pa.uint8()),
        "u8": pa.array([2**64 - 1, None], pa.uint64()),
        "text": pa.array(["é", None], pa.large_string()),
        "word": pa.array(["a", None]).dictionary_encode(),
        "at": pa.array([1_700_000_000_000_000_000, None], pa.timestamp("ns", "UTC")),
        "local": pa.array([1_700_000_000, None], pa.timestamp("s")),
        "day": pa.array([date(2024, 2, 29), None]),
        "list": pa.array([[1, None], None], pa.list_(pa.uint16())),
    }
)


@pytest.fixture(scope="module")
def server() -> Iterator[TableServer]:
    """Paced tables have 1000 rows from the start, and the others some time after a test has started them."""
    seconds = np.concatenate([np.zeros(1000), steady(ROWS - 1000, 1e-4)])
    paced = {"slow orders": Paced(ORDERS, seconds), "slow parcels": Paced(PARCELS, seconds)}
    tables = {"orders": ORDERS, "parcels": PARCELS, "kinds": KINDS, "none": ORDERS.slice(0, 0), **paced}
    with TableServer(tables, batch_rows=500) as server:
        server.paced = paced
        yield server


@pytest.fixture
def line(server: TableServer) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


def flight(reader: Any, port: int, dataset: str, **options: Any) -> DataFrame:
    return (
        reader.format("dovetail-flight").options(location=f"grpc://127.0.0.1:{port}", dataset=dataset, **options).load()
    )


def check_orders(batches: Batches) -> None:
    """Check that every row is there once, in the server's order."""
    found = pa.concat_tables([batches[number] for number in sorted(batches)])
    assert found.select(ORDERS.column_names).cast(ORDERS.schema).equals(ORDERS)


# Tables.


def test_a_dataset_is_a_table(spark: SparkSession, server: TableServer) -> None:
    table = flight(spark.read, server.port, "orders", numPartitions=3)
    assert table.rdd.getNumPartitions() == 3
    assert table.toArrow().sort_by("id").cast(ORDERS.schema).equals(ORDERS)
    assert flight(spark.read, server.port, "none").count() == 0


def test_columns_have_the_nearest_type(spark: SparkSession, server: TableServer) -> None:
    table = flight(spark.read, server.port, "kinds")
    assert table.schema.simpleString() == (
        "struct<u1:smallint,u8:decimal(20,0),text:string,word:string,at:timestamp,local:timestamp_ntz,day:date,"
        "list:array<int>>"
    )
    first, second = table.selectExpr("*", "unix_micros(at) AS micros").collect()
    assert (first.u1, int(first.u8), first.text, first.word, first.list) == (255, 2**64 - 1, "é", "a", [1, None])
    assert first.micros == 1_700_000_000_000_000
    assert not any(value is not None for value in second)


# Streams.


@pytest.mark.one_in(3)
def test_micro_batches_are_limited_and_a_replayed_one_is_the_same(
    spark: SparkSession, server: TableServer, tmp_path: Path
) -> None:
    stream = flight(spark.readStream, server.port, "orders", maxRowsPerTrigger=2000)
    batches: Batches = {}
    started(stream, tmp_path, batches, availableNow=True).awaitTermination()
    check_orders(batches)
    assert max(table.num_rows for table in batches.values()) <= 2000
    again: Batches = {}
    number = forget_the_last_commit(tmp_path)
    started(stream, tmp_path, again, availableNow=True).awaitTermination()
    assert again == {number: batches[number]}


@pytest.mark.slow
def test_a_server_that_dies_and_a_query_that_restarts_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(ORDERS, tmp_path / "orders.parquet")
    command = [sys.executable, "-m", "dovetail.sources.flight_server", f"orders={tmp_path / 'orders.parquet'}"]
    servers = [
        subprocess.Popen([*command, "--rows-per-second", "2000"], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    ports = [int(str(server.stdout.readline()).rsplit(":", 1)[1]) for server in servers if server.stdout]
    line = Proxy(ports[0])
    try:
        options = {"maxRowsPerTrigger": 700, "end": "true", "longestPauseMs": 100}
        stream = flight(spark.readStream, line.port, "orders", **options)
        batches: Batches = {}
        query = started(stream, tmp_path / "checkpoint", batches)
        wait_for(lambda: rows_of(batches) > 1000, query)
        line.target = 1  # where no server is listening
        servers[0].kill()
        line.cut()
        time.sleep(0.3)  # time for some failed tries
        assert query.isActive
        line.target = ports[1]
        before = rows_of(batches)
        wait_for(lambda: rows_of(batches) > before, query)
        query.stop()
        number = forget_the_last_commit(tmp_path / "checkpoint")
        first = batches[number]
        query = started(stream, tmp_path / "checkpoint", batches)
        wait_for(lambda: rows_of(batches) > ROWS, query)  # including the row that marks the end
        query.stop()
        assert batches[number].equals(first)
    finally:
        line.close()
        for server in servers:
            server.kill()
            server.communicate()
    last = batches[max(batches)]
    assert last["_end"].to_pylist() == [None] * (last.num_rows - 1) + [True]
    batches[max(batches)] = last.slice(0, last.num_rows - 1)
    check_orders(batches)


@pytest.mark.slow
def test_a_stalled_source_does_not_hold_up_the_other_and_the_join_survives_a_restart(
    spark: SparkSession, server: TableServer, tmp_path: Path
) -> None:
    options = {"maxRowsPerTrigger": 2500, "end": "true"}
    slow = flight(spark.readStream, server.port, "slow orders", **options)
    quick = flight(spark.readStream, server.port, "parcels", **options)
    place = {"state_dir": str(tmp_path / "state"), "cells": 2}
    joined = dovetail.join(slow, quick, "l.k = r.k", algorithm="diner", memory="1MB", end="source", **place)
    assert joined.columns == ["id", "k", "pad", "nr", "k_right"]
    writer = joined.select("id", "nr").writeStream.format("parquet").option("path", str(tmp_path / "joined"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()

    def come() -> list[int]:
        return [sum(p.sources[side].numInputRows for p in query.recentProgress) for side in (0, 1)]

    wait_for(lambda: come() == [1000, ROWS + 1], query)
    query.stop()
    forget_the_last_commit(tmp_path / "checkpoint")
    query = writer.start()
    server.paced["slow orders"].begin()
    dovetail.finish(query)
    pairs = ORDERS.join(PARCELS, "k", join_type="inner").select(["id", "nr"])
    found = spark.read.parquet(str(tmp_path / "joined"))
    assert Counter(map(tuple, found.collect())) == Counter(zip(*pairs.to_pydict().values(), strict=True))


@pytest.mark.slow
def test_several_sources_tell_their_ends(spark: SparkSession, server: TableServer, tmp_path: Path) -> None:
    names = {"o": "orders", "p": "parcels", "q": "slow orders"}
    streams = {alias: flight(spark.readStream, server.port, name, end="true") for alias, name in names.items()}
    joined = dovetail.multijoin(
        streams, "o.k = p.k AND o.id = q.id", memory="2MB", end="source", state_dir=str(tmp_path / "state"), cells=2
    )
    assert joined.columns == ["o_id", "o_k", "o_pad", "nr", "p_k", "q_id", "q_k", "q_pad"]
    batches: Batches = {}
    query = started(joined.select("o_id", "nr"), tmp_path / "checkpoint", batches)
    server.paced["slow orders"].begin()
    dovetail.finish(query)
    pairs, found = ORDERS.join(PARCELS, "k", join_type="inner").select(["id", "nr"]), pa.concat_tables(batches.values())
    assert Counter(zip(*found.columns, strict=True)) == Counter(zip(*pairs.columns, strict=True))


def test_what_is_available_now_ends_there(spark: SparkSession, server: TableServer, tmp_path: Path) -> None:
    batches: Batches = {}
    stream = flight(spark.readStream, server.port, "slow parcels")  # which has not started
    started(stream, tmp_path, batches, availableNow=True).awaitTermination()
    assert rows_of(batches) == 1000


@pytest.mark.slow
def test_a_server_that_stays_away_is_given_up_and_one_that_is_back_goes_on(
    spark: SparkSession, line: Proxy, tmp_path: Path
) -> None:
    options = {"maxRowsPerTrigger": 2000, "tries": 3, "firstPauseMs": 10}
    stream = flight(spark.readStream, line.port, "orders", **options)
    batches: Batches = {}
    target, line.target = line.target, 1
    query = started(stream, tmp_path, batches)
    with pytest.raises(
        StreamingQueryException, match=r"failed after 0 rows: .* no batch after 3 tries\. Restart the query"
    ):
        query.awaitTermination()
    line.target = target
    query = started(stream, tmp_path, batches)
    wait_for(lambda: rows_of(batches) == ROWS, query)
    query.stop()
    check_orders(batches)


@pytest.mark.one_in(3)
def test_a_slow_line_gives_what_has_come(spark: SparkSession, line: Proxy, tmp_path: Path) -> None:
    stream = flight(spark.readStream, line.port, "orders")
    line.stall_after(200_000)
    batches: Batches = {}
    query = started(stream, tmp_path, batches)
    wait_for(lambda: rows_of(batches) > 0, query)
    assert rows_of(batches) < ROWS  # although the server has announced all of them
    line.slow_down(0.01)
    line.go_on()
    wait_for(lambda: rows_of(batches) == ROWS, query)
    query.stop()
    check_orders(batches)


# Errors at the call.


def test_a_server_that_is_not_there(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match=r"cannot read grpc://127\.0\.0\.1:1, 'orders'"):
        flight(spark.readStream, 1, "orders")


@pytest.mark.skipif(HAS_STREAM_OFFSETS, reason="this PySpark is new enough")
def test_a_stream_is_refused_by_an_older_pyspark(spark: SparkSession, server: TableServer, tmp_path: Path) -> None:
    stream = flight(spark.readStream, server.port, "orders")
    with pytest.raises(StreamingQueryException, match=r"need PySpark 4\.2 or newer, .* this is 4\.[01]\."):
        started(stream, tmp_path, {}).awaitTermination()


@pytest.mark.one_in(3)
def test_an_end_that_nobody_tells(spark: SparkSession, server: TableServer) -> None:
    stream = flight(spark.readStream, server.port, "orders")
    with pytest.raises(InputError, match=r"option\('end', 'true'\); the left stream has no column _end"):
        dovetail.join(stream, stream, "l.k = r.k", algorithm="diner", end="source")
    told = flight(spark.readStream, server.port, "orders", end="true")
    inputs = {"a": told, "b": stream, "c": told}
    with pytest.raises(InputError, match="b has no column _end"):
        dovetail.multijoin(inputs, "a.k = b.k AND b.k = c.k", end="source")
