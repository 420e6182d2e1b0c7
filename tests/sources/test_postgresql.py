"""Joins of tables in a real PostgreSQL that stalls, breaks, dies and comes back."""

import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.patience import PATIENCE_S, wait_for_threads_to_end
from tests.sources.proxy import Proxy

import dovetail
from dovetail.errors import InputError, SourceError
from dovetail.sources import Retry
from dovetail.sources.reader import Reader

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: pip install '.[postgres]'")

from tests.sources.postgres_server import PostgresServer, Unavailable  # noqa: E402 (needs psycopg)

ROWS = 12_000
CUSTOMERS = pa.table({"k": np.arange(0, 1000, 4), "name": [f"c{i}" for i in range(250)]})
ON = "l.k = r.k"
SOON = Retry(tries=8, first_pause_ms=5, longest_pause_ms=20)
PATIENT = Retry(tries=2000, first_pause_ms=5, longest_pause_ms=20)

TABLES = f"""
CREATE TABLE orders AS
    SELECT i AS id, i % 1000 AS k, lpad(i::text, 100, '0') AS pad FROM generate_series(0, {ROWS - 1}) AS i;
ALTER TABLE orders ADD PRIMARY KEY (id);
CREATE TABLE days AS
    SELECT date '2024-01-01' + (i / 100) AS day, 'n' || i % 100 AS "No", i AS id FROM generate_series(0, 4999) AS i;
CREATE TABLE twice AS SELECT i / 2 AS id, i AS k FROM generate_series(0, 999) AS i;
CREATE TABLE holes AS SELECT nullif(i, 77) AS id, i AS k FROM generate_series(0, 99) AS i;
CREATE TABLE kinds (b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric(12, 3), t text, v varchar(9),
    c char(3), y bytea, d date, h time, ts timestamp, tz timestamptz);
INSERT INTO kinds VALUES (true, -2, 4, 8000000000, 1.5, 2.5, 12.345, 'é', 'v', 'c', '\\x00ff',
    '2024-02-29', '12:34:56.7', '2024-02-29 01:02:03', '2024-02-29 01:02:03+02');
INSERT INTO kinds DEFAULT VALUES;
CHECKPOINT;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(TABLES.replace("CHECKPOINT;", ""))
        connection.execute("CHECKPOINT")
    yield server
    server.remove()


@pytest.fixture
def line(server: PostgresServer) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


def orders(server: PostgresServer, line: Proxy, **options: Any) -> Any:
    return dovetail.sources.postgres(
        server.dsn(line.port), table="orders", **{"key": "id", "batch_rows": 500, **options}
    )


def ids(steps: Any) -> Counter[int]:
    found: Counter[int] = Counter()
    for step in steps:
        found.update(step.batch["id"].to_pylist())
    return found


def check(found: Counter[int]) -> None:
    assert found == Counter(range(0, ROWS, 4))


@pytest.mark.one_in(2)
def test_a_table_is_joined_in_the_order_of_its_key(server: PostgresServer, line: Proxy) -> None:
    source = orders(server, line)
    assert source.schema == pa.schema([("id", pa.int32()), ("k", pa.int32()), ("pad", pa.string())])
    assert "secret" not in source.name
    steps = list(dovetail.progressive(source, CUSTOMERS, ON))
    assert steps[0].batch.num_rows <= 64  # the first rows are returned before a batch is full
    check(ids(steps))
    reading = source.open((7,))
    assert next(reading).batch["id"].to_pylist() == list(range(8, 72))
    reading.close()
    again = [n for piece in Reader(source, SOON).pieces((7,), (100,)) for n in piece.batch["id"].to_pylist()]
    assert again == list(range(8, 101))


def test_a_query_may_have_percents_comments_and_a_semicolon(server: PostgresServer) -> None:
    query = "SELECT id, k % 10 AS k FROM orders WHERE pad LIKE '%7' -- sevens\n;  "
    source = dovetail.sources.postgres(server.dsn(), query, key="id")
    assert ids(dovetail.progressive(source, pa.table({"k": [7]}), ON)) == Counter(range(7, ROWS, 10))


def test_all_kinds_of_columns_come_through(server: PostgresServer) -> None:
    source = dovetail.sources.postgres(server.dsn(), table="public.kinds")
    (step,) = dovetail.progressive(source, pa.table({"one": [1]}), "r.one = 1")
    first, second = step.batch.to_pylist()
    assert second == dict.fromkeys(source.schema.names) | {"one": 1}
    assert first == {
        "b": True,
        "i2": -2,
        "i4": 4,
        "i8": 8_000_000_000,
        "f4": 1.5,
        "f8": 2.5,
        "n": Decimal("12.345"),
        "t": "é",
        "v": "v",
        "c": "c  ",
        "y": b"\x00\xff",
        "d": date(2024, 2, 29),
        "h": time(12, 34, 56, 700_000),
        "ts": datetime(2024, 2, 29, 1, 2, 3),
        "tz": datetime(2024, 2, 28, 23, 2, 3, tzinfo=UTC),
        "one": 1,
    }


@pytest.mark.parametrize("after", [5_000, 300_000, 1_200_000])
def test_a_broken_connection_is_resumed_behind_the_last_key(server: PostgresServer, line: Proxy, after: int) -> None:
    source = orders(server, line)
    line.cut_after(after)
    check(ids(dovetail.progressive(source, CUSTOMERS, ON, retry=SOON)))
    assert line.ration_used.is_set()
    assert line.connections >= 3


def test_a_key_may_have_several_columns(server: PostgresServer, line: Proxy) -> None:
    source = dovetail.sources.postgres(server.dsn(line.port), table="days", key=["day", "No"], batch_rows=70)
    line.cut_after(60_000)
    found = ids(dovetail.progressive(source, pa.table({"one": [1]}), "r.one = 1", retry=SOON))
    assert line.ration_used.is_set()
    assert found == Counter(range(5000))


def test_a_connection_that_the_server_ends_is_resumed(server: PostgresServer, line: Proxy) -> None:
    source = orders(server, line)
    line.stall_after(200_000)
    steps = dovetail.progressive(source, CUSTOMERS, ON, retry=PATIENT)
    found = ids([next(steps)])
    assert line.ration_used.wait(PATIENCE_S)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        assert connection.execute(f"SELECT pg_terminate_backend(pid) {others}").fetchall()
    line.go_on()
    check(found + ids(steps))


@pytest.mark.one_in(2)
def test_a_stalled_server_leaves_time_for_other_work(server: PostgresServer, line: Proxy) -> None:
    source = dovetail.sources.postgres(server.dsn(line.port), "SELECT * FROM orders WHERE id < 4000", key="id")
    line.stall_after(350_000)
    other = pa.table({"other": np.arange(4000)[::-1]})
    steps = dovetail.progressive(source, other, "l.id = r.other", memory="100KB", algorithm="nested_loop", wait_ms=10)
    found: Counter[int] = Counter()
    for step in steps:
        found.update(step.batch["id"].to_pylist())
        if step.phase == "reactive" and line.ration_used.is_set():
            line.go_on()
    assert found == Counter(range(4000))


def test_leaving_stops_a_fetch_under_way(server: PostgresServer, line: Proxy) -> None:
    source = orders(server, line)
    line.stall_after(200_000)
    steps = dovetail.progressive(source, CUSTOMERS, ON)
    next(steps)
    assert line.ration_used.wait(PATIENCE_S)
    steps.close()  # type: ignore[attr-defined]
    wait_for_threads_to_end()


def test_without_a_key_a_break_is_final_and_what_came_stays_valid(server: PostgresServer, line: Proxy) -> None:
    source = orders(server, line, key=None)
    line.stall_after(500_000)
    steps = dovetail.progressive(CUSTOMERS, source, ON, retry=SOON)
    found = ids([next(steps)])
    line.cut()
    rest: list[Any] = []
    with pytest.raises(SourceError, match=r"the right source \(PostgreSQL at .*, orders\) failed after [\d,]+ rows"):
        rest.extend(steps)
    found += ids(rest)
    assert found <= Counter(range(0, ROWS, 4))


@pytest.mark.parametrize(("table", "problem"), [("twice", "is not unique"), ("holes", "has nulls")])
@pytest.mark.parametrize("batch_rows", [1, 3, 4096])
def test_a_key_that_could_lose_rows_is_refused(
    server: PostgresServer, table: str, problem: str, batch_rows: int
) -> None:
    source = dovetail.sources.postgres(server.dsn(), table=table, key="id", batch_rows=batch_rows)
    with pytest.raises(SourceError, match=f"its key id {problem}.*A retry cannot fix this"):
        list(dovetail.progressive(source, CUSTOMERS, ON, retry=SOON))


def test_what_will_not_work_is_said_at_once(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def source(query: str, **options: Any) -> Any:
        return dovetail.sources.postgres(server.dsn(), query, **options)

    with pytest.raises(SourceError, match=r'cannot read PostgreSQL at .*, order: relation "order" does not exist'):
        dovetail.sources.postgres(server.dsn(), table="order")
    with pytest.raises(SourceError, match="no column nr for its key"):
        source("SELECT 1 AS id", key="nr")
    with pytest.raises(SourceError, match=r"column j has the type jsonb.*Cast it in the query, to text"):
        source("SELECT '{}'::jsonb AS j")
    with pytest.raises(SourceError, match=r"column a has the type .*Cast it in the query, to text"):
        source("SELECT '{1}'::int[] AS a")
    with pytest.raises(SourceError, match=r"column n has the type numeric.*to numeric\(38, 6\) or float8"):
        source("SELECT 1.5 AS n")
    with pytest.raises(SourceError, match=r"cannot read PostgreSQL at 127\.0\.0\.1"):
        dovetail.sources.postgres(server.dsn(1), table="orders")
    with pytest.raises(SourceError, match=r"failed after 0 rows: division by zero.*A retry cannot fix this"):
        list(dovetail.progressive(source("SELECT 1 / (k - k) AS k FROM twice", key="k"), CUSTOMERS, ON))
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "dovetail.sources.postgresql")
    with pytest.raises(InputError, match=r"psycopg is missing: pip install 'psycopg\[binary\]>=3\.3'"):
        source("SELECT 1 AS id")


def test_a_server_that_is_killed_and_comes_back_gives_every_row_once(server: PostgresServer, line: Proxy) -> None:
    source = orders(server, line)
    line.stall_after(500_000)
    steps = dovetail.progressive(source, CUSTOMERS, ON, retry=PATIENT)
    found = ids([next(steps)])
    assert line.ration_used.wait(PATIENCE_S)
    server.kill()
    line.go_on()
    server.start()
    check(found + ids(steps))


@pytest.mark.parametrize(("took_s", "rows"), [(0.01, 128), (0.3, 64), (2.0, 32)])
def test_fetches_are_as_large_as_the_server_is_quick(took_s: float, rows: int) -> None:
    from dovetail.sources.postgresql import _next_fetch

    assert _next_fetch(64, took_s, 4096) == rows
    assert _next_fetch(1, 9.0, 4096) == 1
    assert _next_fetch(4096, 0.0, 4096) == 4096


class Lossy(Proxy):
    """Drops single rows from the server's responses, once."""

    lose = 0  # number of rows

    def _pump(self, source: socket.socket, sink: socket.socket, rationed: bool) -> None:
        if not rationed:
            return super()._pump(source, sink, rationed)
        with suppress(OSError):
            while True:
                kind, size = (head := _read_exactly(source, 5))[:1], int.from_bytes(head[1:], "big") - 4
                body = _read_exactly(source, size)
                if kind == b"D" and self.lose and self.connections > 1:  # the first connection requests the schema
                    self.lose -= 1
                    continue
                sink.sendall(head + body)
        for line in (source, sink):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        return None


def _read_exactly(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = line.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def test_rows_that_get_lost_on_the_way_are_noticed(server: PostgresServer) -> None:
    """The server reports how many rows it has sent; receiving fewer counts as a broken connection."""
    line = Lossy(server.port)
    dsn = f"{server.dsn(line.port)}?sslmode=disable&gssencmode=disable"
    for options, lost in (({"key": "id"}, 3), ({}, 1)):
        source = dovetail.sources.postgres(dsn, table="orders", batch_rows=500, **options)
        line.lose = lost
        if options:
            check(ids(dovetail.progressive(source, CUSTOMERS, ON, retry=SOON)))
        else:
            with pytest.raises(SourceError, match=r"63 of 64 rows arrived.*It cannot be resumed"):
                list(dovetail.progressive(source, CUSTOMERS, ON, retry=SOON))
        assert not line.lose
    line.close()
