"""Reads PostgreSQL tables and queries through a server-side cursor.

    DECLARE … CURSOR FOR SELECT * FROM (query) WHERE (key) > (last key) ORDER BY key
    FETCH a batch of rows, again and again

With a key, rows arrive in key order, and after a break the cursor starts after the last key that arrived, even if the
new connection goes to another server. The key must be unique and not null; both are checked while rows are read.
Without a key the source cannot be resumed.

Key ranges can be read in parallel. A query finds their bounds without fetching the rows, and all connections share the
snapshot of one of them.

psycopg 3 is used because it supports every PostgreSQL version, yields control while it waits, and installs without a
compiler.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from typing import Any, NamedTuple

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import RawServerCursor, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dovetail.core.addresses import UNQUOTED, scheme_of, without_secrets
from dovetail.errors import SourceError
from dovetail.sources.protocol import Piece, cause_of

Key = tuple[Any, ...]


class KeyRange(NamedTuple):
    """The rows after one key, up to another, and their number."""

    start: Key | None
    until: Key
    rows: int


CONNECTION = {"connect_timeout": "10", "keepalives_idle": "15", "keepalives_interval": "5", "keepalives_count": "3"}
SHOWN = ("host", "hostaddr", "port", "service", *CONNECTION, "sslmode", "gssencmode")
"""Settings that messages may show."""
PLACE = re.compile(r"[\w.:/%~\[\]-]*(,[\w.:/%~\[\]-]*)*")
PORT = re.compile(r"[\d,]*")
MALFORMED = "PostgreSQL: the dsn cannot be read, and is not shown, since it may have a password in it."
FIRST_FETCH = 64  # rows; few, so that first results need not wait for a full batch
QUICK_S, SLOW_S = 0.25, 0.5  # after a faster fetch the next one asks for more rows, after a slower one for fewer
TYPES = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.uint32(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "name": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}


class PostgresSource:
    """The rows of a table or query, in key order if it has a key."""

    def __init__(self, dsn: str, rows: sql.Composable, name: str, key: Sequence[str], batch_rows: int) -> None:
        given = _settings(dsn)
        self._dsn = make_conninfo(**(CONNECTION | given))
        self._secrets = [value for setting, value in given.items() if setting not in SHOWN]
        place = given.get("host") or given.get("hostaddr") or given.get("service") or "local"
        self.name = f"PostgreSQL at {place}, {name}"
        self.key = tuple(key)
        self.resumable = bool(self.key)
        self.batch_rows = batch_rows
        self._rows = rows
        self._snapshot: str | None = None
        try:
            with self.connect() as connection:
                described = connection.execute(sql.SQL("SELECT * FROM {} AS q LIMIT 0").format(rows)).description
        except psycopg.Error as error:
            raise SourceError(f"cannot read {self.name}: {cause_of(error)}.") from error
        self.schema = pa.schema([pa.field(column.name, _arrow_type(column)) for column in described or ()])
        unknown = [column for column in self.key if column not in self.schema.names]
        if unknown:
            raise SourceError(f"{self.name} has no column {', '.join(unknown)} for its key.")

    def open(self, position: Key | None = None, until: Key | None = None) -> PostgresReading:
        return PostgresReading(self, position, until)

    def connect(self) -> psycopg.Connection[Any]:
        """Connect. Errors are raised without secrets, and outside the handler of psycopg's own."""
        try:
            return psycopg.connect(self._dsn)
        except psycopg.Error as error:
            text = without_secrets(str(error), self._dsn, self._secrets)
        raise psycopg.OperationalError(text)

    def seen_in(self, snapshot: str | None) -> PostgresSource:
        """The same source as seen in the snapshot of another connection. If that has ended, as it is now."""
        same = copy(self)
        same._snapshot = snapshot
        return same

    def connect_to_read(self) -> psycopg.Connection[Any]:
        connection = self.connect()
        if self._snapshot is None:
            return connection
        try:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(self._snapshot))
        except psycopg.Error:
            connection.close()
            return self.connect()
        return connection

    def cut(
        self,
        connection: psycopg.Connection[Any],
        position: Key | None,
        until: Key | None,
        rows: int | None,
        range_rows: int,
    ) -> list[KeyRange]:
        """Divide up to `rows` rows after a key into key ranges. The server finds the bounds, mostly from an index."""
        columns = sql.SQL(", ").join(map(sql.Identifier, self.key))
        where, values = self._bounds(position, until)
        query = sql.SQL(
            "WITH k AS (SELECT {columns}, row_number() OVER (ORDER BY {columns}) AS dovetail_n FROM {rows} AS q "
            "{where} ORDER BY {columns} {limit}) SELECT {columns}, dovetail_n FROM k "
            "WHERE dovetail_n % {size} = 0 OR dovetail_n = (SELECT count(*) FROM k) ORDER BY dovetail_n"
        ).format(
            columns=columns,
            rows=self._rows,
            where=where,
            limit=sql.SQL("" if rows is None else f"LIMIT {rows}"),
            size=sql.Literal(range_rows),
        )
        cuts: list[KeyRange] = []
        before, counted = position, 0
        with psycopg.RawCursor(connection) as cursor:
            for *key, number in cursor.execute(query, values):
                if any(part is None for part in key):
                    raise SourceError(f"its key {', '.join(self.key)} has nulls. Choose another key.")
                cuts.append(KeyRange(before, tuple(key), number - counted))
                before, counted = tuple(key), number
        return cuts

    def count_query(self) -> sql.Composable:
        return sql.SQL("SELECT count(*) FROM {} AS q").format(self._rows)

    def last_key(self) -> Key | None:
        """The last key of the current rows."""
        columns = sql.SQL(", ").join(map(sql.Identifier, self.key))
        down = sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(column)) for column in self.key)
        query = sql.SQL("SELECT {} FROM {} AS q ORDER BY {} LIMIT 1").format(columns, self._rows, down)
        with self.connect() as connection:
            found = connection.execute(query).fetchone()
        return None if found is None else tuple(found)

    def declare(
        self, connection: psycopg.Connection[Any], position: Key | None, until: Key | None
    ) -> RawServerCursor[Any]:
        """A cursor for the rows after a key, up to another key or to the end."""
        select: list[sql.Composable] = [sql.SQL("SELECT * FROM {} AS q").format(self._rows)]
        values: list[Any] = []
        if self.key:
            where, values = self._bounds(position, until)
            select += [where, sql.SQL("ORDER BY {}").format(sql.SQL(", ").join(map(sql.Identifier, self.key)))]
        cursor = RawServerCursor(connection, "dovetail")
        cursor.execute(sql.SQL(" ").join(select), values, binary=True)
        return cursor

    def _bounds(self, position: Key | None, until: Key | None) -> tuple[sql.Composable, list[Any]]:
        """The condition that rows are after a key and up to another one, with its values."""
        columns = sql.SQL(", ").join(map(sql.Identifier, self.key))
        bounds: list[sql.Composable] = []
        values: list[Any] = []
        for compared, key in ((">", position), ("<=", until)):
            if key is not None:
                places = sql.SQL(", ".join(f"${len(values) + i}" for i in range(1, len(key) + 1)))
                bounds.append(sql.SQL("({}) {} ({})").format(columns, sql.SQL(compared), places))
                values += key
        return (sql.SQL("WHERE {}").format(sql.SQL(" AND ").join(bounds)) if bounds else sql.SQL("")), values


class Snapshot:
    """The snapshot of a connection, valid while it is open. Other connections can be set to it."""

    def __init__(self, source: PostgresSource) -> None:
        self.connection = source.connect()
        self.name: str | None = None
        self.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        try:
            found = self.connection.execute("SELECT pg_export_snapshot()").fetchone()
            self.name = None if found is None else str(found[0])
        except psycopg.Error:  # a server that exports no snapshots: rely on counts
            self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


class PostgresReading:
    """One connection that reads from a key to the end, or to another key."""

    def __init__(self, source: PostgresSource, position: Key | None, until: Key | None) -> None:
        self._source = source
        self._connection: psycopg.Connection[Any] | None = None
        self._left = False
        self._pieces = self._read(position, until)

    def __next__(self) -> Piece:
        return next(self._pieces)

    def close(self) -> None:
        self._left = True
        # libpq must not be called while another thread waits in it, but its socket can be shut down.
        with suppress(OSError, psycopg.Error):
            if self._connection is not None:
                with socket.socket(fileno=os.dup(self._connection.fileno())) as line:
                    line.shutdown(socket.SHUT_RDWR)
        self._pieces.close()

    def _read(self, position: Key | None, until: Key | None) -> Generator[Piece, None, None]:
        source, rows = self._source, min(FIRST_FETCH, self._source.batch_rows)
        with final_errors():
            self._connection = source.connect_to_read()
            try:
                cursor = source.declare(self._connection, position, until)
                while not self._left:
                    began = time.monotonic()
                    fetched = cursor.fetchmany(rows)
                    _check_count(cursor, len(fetched))
                    if not fetched:
                        return
                    rows = _next_fetch(rows, time.monotonic() - began, source.batch_rows)
                    batch = _batch(fetched, source.schema)
                    position = _checked_key(source, batch, fetched, position)
                    yield Piece(batch, position)
            finally:
                self._connection.close()


def _settings(dsn: str) -> dict[str, str]:
    """The settings of a dsn that are certain: an unquoted password may look like a host, a port or a database."""
    given: dict[str, Any] = {}
    with suppress(psycopg.Error):
        given = conninfo_to_dict(dsn)
    is_uri = scheme_of(dsn) != ""
    found = {setting: str(value) for setting, value in given.items() if value is not None}
    if (
        (dsn.strip() and not found)
        or not all(PLACE.fullmatch(found.get(setting, "")) for setting in ("host", "hostaddr", "service"))
        or not PORT.fullmatch(found.get("port", ""))
        or (is_uri and "@" in found.get("dbname", "") and "%40" not in dsn)
    ):
        raise SourceError(f"{MALFORMED} Write pairs of names and values, or a URI. {UNQUOTED}")
    return found


def _check_count(cursor: RawServerCursor[Any], rows: int) -> None:
    """After a fetch, the server reports the number of rows. If fewer arrived, some were lost: a break."""
    told = cursor.pgresult.command_tuples if cursor.pgresult is not None else None
    if told is not None and told != rows:
        raise psycopg.OperationalError(f"{rows:,} of {told:,} rows arrived")


def source_of(
    dsn: str, query: str | None, table: str | None, key: str | Sequence[str] | None, batch_rows: int
) -> PostgresSource:
    """The source that `dovetail.sources.postgres` describes."""
    keys = [key] if isinstance(key, str) else list(key or ())
    if table is not None:
        return PostgresSource(dsn, sql.Identifier(*table.split(".")), table, keys, batch_rows)
    text = str(query).strip().rstrip(";")
    name = text if len(text) <= 60 else f"{text[:57]}..."
    # A line break, because the query may end with a comment.
    return PostgresSource(dsn, sql.SQL(f"({text}\n)"), name, keys, batch_rows)


def _next_fetch(rows: int, took_s: float, most: int) -> int:
    if took_s < QUICK_S:
        return min(2 * rows, most)
    return max(1, rows // 2) if took_s > SLOW_S else rows


def _arrow_type(column: psycopg.Column) -> pa.DataType:
    info = psycopg.adapters.types.get(column.type_code)
    name = "?" if info is None or column.type_code == info.array_oid else info.name
    if name == "numeric" and column.precision is not None and column.precision <= 38:
        return pa.decimal128(column.precision, column.scale or 0)
    if name not in TYPES:
        cast = "numeric(38, 6) or float8" if name == "numeric" else "text"
        raise SourceError(
            f"column {column.name} has the type {column.type_display}, which has no counterpart in Arrow here. "
            f"Cast it in the query, to {cast} for instance."
        )
    return TYPES[name]


def _batch(fetched: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*fetched, strict=True)
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _checked_key(
    source: PostgresSource, batch: pa.RecordBatch, fetched: list[tuple[Any, ...]], before: Key | None
) -> Key | None:
    """The key of the last row. Refuses a key with which rows could be lost when the source is resumed."""
    if not source.key:
        return None
    key = ", ".join(source.key)
    columns = [batch.column(name) for name in source.key]
    if any(column.null_count for column in columns):
        raise SourceError(f"its key {key} has nulls, after which it could not be resumed. Choose another key.")
    places = [batch.schema.get_field_index(name) for name in source.key]
    same = pa.array([tuple(fetched[0][place] for place in places) == before])
    if batch.num_rows > 1:
        repeats = [pc.equal(column.slice(1), column.slice(0, len(column) - 1)) for column in columns]
        for again in repeats[1:]:
            repeats[0] = pc.and_(repeats[0], again)
        same = pa.concat_arrays([same, repeats[0]])
    if pc.any(same).as_py():
        raise SourceError(f"its key {key} is not unique, and rows with equal keys could be lost. Choose another key.")
    return tuple(fetched[-1][place] for place in places)


@contextmanager
def final_errors() -> Iterator[None]:
    """Lost connections are retried. Other errors of the server are final."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError):
        raise
    except psycopg.Error as error:
        raise SourceError(cause_of(error)) from error
