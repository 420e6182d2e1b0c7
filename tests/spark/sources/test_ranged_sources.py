"""Streams read by tasks as ranges of rows, endpoints or ranges of keys: every row once, despite breaks and restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.sources.proxy import Proxy
from tests.spark.sources.remote_streams import Batches, forget_the_last_commit, rows_of, started, wait_for

import dovetail
from dovetail.sources.flight_server import TableServer
from dovetail.sources.paced import Paced
from dovetail.testing.arrival_times import steady

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

ROWS = 6000
ORDERS = pa.table({"id": np.arange(ROWS), "k": np.arange(ROWS) % 700, "pad": [f"{i:050}" for i in range(ROWS)]})
PARTS = 5  # number of endpoints of the server without offsets


class Watched(TableServer):
    """Records the tickets it receives."""

    def do_get(self, context: Any, ticket: Any) -> Any:
        self.tickets.append(json.loads(ticket.ticket))
        return super().do_get(context, ticket)


class Endpoints(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow ships no types
    """Rows behind several endpoints, as on any Flight server."""

    endpoints = PARTS

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        found = [flight.FlightEndpoint(str(number).encode(), []) for number in range(self.endpoints)]
        return flight.FlightInfo(ORDERS.schema, descriptor, found, total_records=ROWS)

    def do_get(self, context: Any, ticket: Any) -> Any:
        size = ROWS // PARTS
        return flight.RecordBatchStream(ORDERS.slice(int(ticket.ticket) * size, size))


@pytest.fixture(scope="module")
def server() -> Iterator[TableServer]:
    seconds = np.concatenate([np.zeros(1000), steady(ROWS - 1000, 1e-4)])
    slow = Paced(ORDERS, seconds)
    with Watched({"orders": ORDERS, "slow": slow}, batch_rows=500) as server:
        server.slow, server.tickets = slow, []
        yield server


def flight_stream(reader: Any, port: int, dataset: str = "orders", **options: Any) -> DataFrame:
    given = {"location": f"grpc://127.0.0.1:{port}", "dataset": dataset, **options}
    return reader.format("dovetail-flight").options(**given).load()


def check_orders(batches: Batches) -> None:
    """Check that every row is there once, in the server's order."""
    found = pa.concat_tables([batches[number] for number in sorted(batches)])
    if "_end" in found.column_names:
        assert found["_end"].to_pylist() == [None] * ROWS + [True]
        found = found.slice(0, ROWS)
    assert found.select(ORDERS.column_names).cast(ORDERS.schema).equals(ORDERS)


@pytest.mark.one_in(3)
def test_tasks_read_ranges_and_a_replayed_micro_batch_is_the_same(
    spark: SparkSession, server: Any, tmp_path: Path
) -> None:
    stream = flight_stream(spark.readStream, server.port, maxRowsPerTrigger=2500, numPartitions=3, end="true")
    server.tickets.clear()
    batches: Batches = {}
    started(stream, tmp_path, batches, availableNow=True).awaitTermination()
    check_orders(batches)
    assert [batches[number].num_rows for number in sorted(batches)] == [2500, 2500, 1001]
    spans = sorted((ticket["offset"], ticket["rows"]) for ticket in server.tickets)
    assert len(spans) == 9
    assert [start + rows for start, rows in spans] == [*(start for start, _ in spans[1:]), ROWS]
    again: Batches = {}
    number = forget_the_last_commit(tmp_path)
    started(stream, tmp_path, again, availableNow=True).awaitTermination()
    assert again == {number: batches[number]}


@pytest.mark.one_in(3)
def test_a_server_that_is_away_for_a_while(spark: SparkSession, server: Any, tmp_path: Path) -> None:
    line = Proxy(server.port)
    options = {"maxRowsPerTrigger": 500, "numPartitions": 2, "longestPauseMs": 50, "tries": 1000, "end": "true"}
    stream = flight_stream(spark.readStream, line.port, "slow", **options)
    batches: Batches = {}
    query = started(stream, tmp_path, batches)
    try:
        wait_for(lambda: rows_of(batches) >= 1000, query)
        target, line.target = line.target, 1
        line.cut()
        server.slow.begin()
        wait_for(lambda: query.isActive, query)
        line.target = target
        wait_for(lambda: rows_of(batches) > ROWS, query)
    finally:
        query.stop()
        line.close()
    check_orders(batches)


def test_a_server_that_stays_away_is_given_up(spark: SparkSession, server: Any, tmp_path: Path) -> None:
    line = Proxy(server.port)
    stream = flight_stream(spark.readStream, line.port, numPartitions=2, tries=3, firstPauseMs=10)
    line.target = 1
    query = started(stream, tmp_path, {})
    with pytest.raises(StreamingQueryException, match=r"No answer after 3 tries\. Restart the query"):
        query.awaitTermination()
    line.close()


@pytest.mark.one_in(4)
def test_a_task_for_each_endpoint(spark: SparkSession, tmp_path: Path) -> None:
    with Endpoints("grpc://127.0.0.1:0") as server:
        table = flight_stream(spark.read, server.port)
        assert table.rdd.getNumPartitions() == PARTS
        assert table.toArrow().cast(ORDERS.schema).equals(ORDERS)
        stream = flight_stream(spark.readStream, server.port, sameOrder="true", numPartitions=2, end="true")
        batches: Batches = {}
        started(stream, tmp_path, batches, availableNow=True).awaitTermination()
        check_orders(batches)
        size = ROWS // PARTS
        assert [batches[number].num_rows for number in sorted(batches)] == [2 * size, 2 * size, size + 1]
        again: Batches = {}
        number = forget_the_last_commit(tmp_path)
        server.endpoints = PARTS + 1
        with pytest.raises(StreamingQueryException, match="its endpoints have changed: 6 of them instead of 5"):
            started(stream, tmp_path, again, availableNow=True).awaitTermination()
        server.endpoints = PARTS
        started(stream, tmp_path, again, availableNow=True).awaitTermination()
        assert again == {number: batches[number]}


@pytest.mark.slow
def test_a_join_of_ranged_streams(spark: SparkSession, server: Any, tmp_path: Path) -> None:
    options = {"maxRowsPerTrigger": 2000, "numPartitions": 2, "end": "true"}
    left, right = (flight_stream(spark.readStream, server.port, **options) for _ in range(2))
    place = {"state_dir": str(tmp_path / "state"), "cells": 2}
    on = "l.k = r.k AND l.id < r.id"
    joined = dovetail.join(left, right, on, algorithm="diner", memory="2MB", end="source", **place)
    batches: Batches = {}
    query = started(joined.select("id", "id_right"), tmp_path / "checkpoint", batches)
    dovetail.finish(query)
    expected = sum(int(n) * (int(n) - 1) // 2 for n in np.bincount(np.arange(ROWS) % 700))
    assert rows_of(batches) == expected


# PostgreSQL.

TABLE = f"""
CREATE TABLE days AS
    SELECT date '2024-01-01' + (i / 100) AS day, 'n' || i % 100 AS "No", i AS id
    FROM generate_series(0, {ROWS - 1}) AS i;
ALTER TABLE days ADD PRIMARY KEY (day, "No");
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[postgres]'")
    from tests.sources.postgres_server import PostgresServer, Unavailable

    try:
        server = PostgresServer()
    except Unavailable as reason:
        pytest.skip(str(reason))
    server.execute(TABLE)
    server.execute("CHECKPOINT")
    yield server
    server.remove()


def days(reader: Any, dsn: str, **options: Any) -> DataFrame:
    given = {"dsn": dsn, "table": "days", "key": "day, No", **options}
    return reader.format("dovetail-postgresql").options(**given).load()


def check_days(batches: Batches) -> None:
    """Check that every row is there once, in the order of the key."""
    found = pa.concat_tables([batches[number] for number in sorted(batches)])
    keys = list(zip(*found.select(["day", "No"]).to_pydict().values(), strict=True))
    assert keys == sorted(keys)
    assert sorted(found["id"].to_pylist()) == list(range(ROWS))


@pytest.mark.one_in(4)
def test_tasks_read_ranges_of_keys(spark: SparkSession, postgres: Any, tmp_path: Path) -> None:
    table = days(spark.read, postgres.dsn(), numPartitions=4)
    assert table.rdd.getNumPartitions() == 4
    assert sorted(table.toArrow()["id"].to_pylist()) == list(range(ROWS))
    stream = days(spark.readStream, postgres.dsn(), numPartitions=3, maxRowsPerTrigger=2500)
    batches: Batches = {}
    started(stream, tmp_path, batches, availableNow=True).awaitTermination()
    check_days(batches)
    assert [batches[number].num_rows for number in sorted(batches)] == [2500, 2500, 1000]
    number = forget_the_last_commit(tmp_path)
    again: Batches = {}
    started(stream, tmp_path, again, availableNow=True).awaitTermination()
    assert again == {number: batches[number]}
    postgres.execute("DELETE FROM days WHERE id = 5999")
    forget_the_last_commit(tmp_path)
    with pytest.raises(StreamingQueryException, match="has changed its rows: 999 instead of 1,000"):
        started(stream, tmp_path, again, availableNow=True).awaitTermination()
    postgres.execute("INSERT INTO days VALUES (date '2024-01-01' + 59, 'n99', 5999)")


@pytest.mark.one_in(4)
def test_rows_that_are_added_while_tasks_read(spark: SparkSession, postgres: Any, tmp_path: Path) -> None:
    """A row with a low key is committed between planning and reading: tasks do not see it, and counts are right."""
    line = Proxy(postgres.port)
    stream = days(spark.readStream, postgres.dsn(line.port), numPartitions=2, maxRowsPerTrigger=3000, end="true")
    line.stall_after(20_000)  # lets the planner's answers pass, but not the rows of the tasks
    batches: Batches = {}
    query = started(stream, tmp_path, batches)
    try:
        wait_for(line.ration_used.is_set, query)
        postgres.execute("INSERT INTO days VALUES (date '2024-01-01', 'n0a', -1)")
        line.go_on()
        wait_for(lambda: rows_of(batches) > ROWS, query)
    finally:
        query.stop()
        line.close()
        postgres.execute("DELETE FROM days WHERE id = -1")
    last = batches[max(batches)]
    assert last["_end"].to_pylist() == [None] * (last.num_rows - 1) + [True]
    batches[max(batches)] = last.slice(0, last.num_rows - 1)
    check_days(batches)


@pytest.mark.slow
def test_a_database_that_dies_and_a_query_that_restarts(spark: SparkSession, postgres: Any, tmp_path: Path) -> None:
    line = Proxy(postgres.port)
    options = {"numPartitions": 2, "maxRowsPerTrigger": 700, "longestPauseMs": 100, "tries": 200}
    stream = days(spark.readStream, postgres.dsn(line.port), **options)
    batches: Batches = {}
    query = started(stream, tmp_path, batches)
    try:
        wait_for(lambda: rows_of(batches) > 700, query)
        postgres.kill()
        line.cut()
        postgres.start()
        before = rows_of(batches)
        wait_for(lambda: rows_of(batches) > before, query)
        query.stop()
        number = forget_the_last_commit(tmp_path)
        first = batches[number]
        query = started(stream, tmp_path, batches)
        wait_for(lambda: rows_of(batches) == ROWS, query)
        assert batches[number].equals(first)
    finally:
        query.stop()
        line.close()
    check_days(batches)


@pytest.mark.one_in(3)
def test_a_table_that_grows_is_followed(spark: SparkSession, postgres: Any, tmp_path: Path) -> None:
    query_text = "SELECT * FROM days WHERE id < 1000"
    options = {"table": "", "query": query_text, "pollSeconds": 0.05, "numPartitions": 2}
    stream = days(spark.readStream, postgres.dsn(), **options)
    batches: Batches = {}
    query = started(stream, tmp_path, batches)
    wait_for(lambda: rows_of(batches) == 1000, query)
    postgres.execute("INSERT INTO days VALUES ('2030-01-01', 'new', -1)")
    wait_for(lambda: rows_of(batches) == 1001, query)
    query.stop()
    postgres.execute("DELETE FROM days WHERE id = -1")
    assert batches[max(batches)]["No"].to_pylist() == ["new"]
