"""Tables of a real PostgreSQL as Spark tables and streams; the server is killed and comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from tests.sources.proxy import Proxy
from tests.spark.sources.remote_streams import Batches, forget_the_last_commit, rows_of, started, wait_for

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[postgres]'")

from tests.sources.postgres_server import PostgresServer, Unavailable  # noqa: E402 (needs psycopg)

pytestmark = pytest.mark.spark

ROWS = 4000
TABLE = f"""
CREATE TABLE days AS
    SELECT date '2024-01-01' + (i / 100) AS day, 'n' || i % 100 AS "No", i AS id, i * 0.25::float8 AS x
    FROM generate_series(0, {ROWS - 1}) AS i;
ALTER TABLE days ADD PRIMARY KEY (day, "No");
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute("CHECKPOINT")
    yield server
    server.remove()


@pytest.fixture
def line(server: PostgresServer) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


def days(reader: Any, dsn: str, **options: Any) -> DataFrame:
    return reader.format("dovetail-postgresql").options(dsn=dsn, **{"table": "days", "key": "day, No"} | options).load()


def check(batches: Batches) -> None:
    """Check that every row is there once, in the order of the key."""
    found = pa.concat_tables([batches[number] for number in sorted(batches)])
    keys = list(zip(*found.select(["day", "No"]).to_pydict().values(), strict=True))
    assert keys == sorted(keys)
    assert sorted(found["id"].to_pylist()) == list(range(ROWS))


def test_a_table_and_a_query(spark: SparkSession, server: PostgresServer) -> None:
    table = days(spark.read, server.dsn())
    assert table.schema.simpleString() == "struct<day:date,No:string,id:int,x:double>"
    assert table.selectExpr("count(*)", "sum(x)").first() == (ROWS, ROWS * (ROWS - 1) / 8)
    options = {"table": "", "key": "", "query": "SELECT id % 7 AS k FROM days -- sevens"}
    assert days(spark.read, server.dsn(), **options).where("k = 0").count() == -(-ROWS // 7)


@pytest.mark.one_in(4)
def test_a_server_that_dies_and_a_query_that_restarts_lose_nothing(
    spark: SparkSession, server: PostgresServer, line: Proxy, tmp_path: Path
) -> None:
    stream = days(spark.readStream, server.dsn(line.port), maxRowsPerTrigger=800, longestPauseMs=100, tries=100)
    line.stall_after(60_000)
    batches: Batches = {}
    query = started(stream, tmp_path, batches)
    wait_for(lambda: line.ration_used.is_set() and rows_of(batches) > 0, query)
    server.kill()
    line.go_on()
    line.cut()
    time.sleep(0.3)  # time for some failed tries
    before = rows_of(batches)
    server.start()
    wait_for(lambda: rows_of(batches) > before, query)
    query.stop()
    number = forget_the_last_commit(tmp_path)
    first = batches[number]
    query = started(stream, tmp_path, batches)
    wait_for(lambda: rows_of(batches) == ROWS, query)
    query.stop()
    assert batches[number].equals(first)
    check(batches)


@pytest.mark.one_in(3)
def test_a_table_that_grows_is_followed(spark: SparkSession, server: PostgresServer, tmp_path: Path) -> None:
    query_text = "SELECT * FROM days WHERE id < 1000"
    stream = days(spark.readStream, server.dsn(), table="", query=query_text, pollSeconds=0.05)
    batches: Batches = {}
    query = started(stream, tmp_path, batches)
    wait_for(lambda: rows_of(batches) == 1000, query)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("INSERT INTO days VALUES ('2030-01-01', 'new', -1, 0)")
        wait_for(lambda: rows_of(batches) == 1001, query)
        query.stop()
        connection.execute("DELETE FROM days WHERE id = -1")
    assert batches[max(batches)]["No"].to_pylist() == ["new"]


@pytest.mark.one_in(3)
def test_what_will_not_work_is_said_at_once(spark: SparkSession, server: PostgresServer, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match='relation "day" does not exist'):
        days(spark.readStream, server.dsn(), table="day")
    stream = days(spark.readStream, server.dsn(), key="")
    with pytest.raises(Exception, match=r"no position to resume at.*Name columns that are unique"):
        started(stream, tmp_path, {}).awaitTermination()
