"""Sources of rows: files, URLs, Arrow Flight servers and PostgreSQL.

    dovetail.sources.flight("grpc://host:8815", "orders")                      for dovetail.progressive
    dovetail.sources.postgres("postgresql://host/db", table="orders", key="id")
    dovetail.sources.csv("https://host/orders.csv", rows=1_000_000)            also for dovetail.join
    dovetail.sources.parquet("orders/", columns=["id", "amount"])             also for dovetail.join

Any object that implements the protocol `Source` is a source as well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.core.lazy import lazy_attributes
from dovetail.errors import InputError
from dovetail.sources.protocol import Piece, Reading, Source
from dovetail.sources.reader import Retry

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Piece", "Reading", "Retry", "Source", "csv", "flight", "json", "parquet", "postgres"]

__getattr__ = lazy_attributes(
    __name__, modules=("arrow_flight", "flight_server", "pace", "paced", "values", "workload")
)


def parquet(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Source:
    """Read a Parquet file, or a directory of them in the order of their names. `columns` selects columns.

    Example:
        >>> import dovetail, pyarrow as pa, pyarrow.parquet as pq, tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     pq.write_table(pa.table({"id": [1, 2], "note": ["a", "b"]}), f"{directory}/orders.parquet")
        ...     orders = dovetail.sources.parquet(f"{directory}/orders.parquet", columns=["id"])
        ...     dovetail.join(orders, pa.table({"id": [2, 3]}), ["id"]).column_names
        ['id']
    """
    from dovetail.sources.parquet_files import parquet_source

    found = parquet_source(path, columns)
    assert found is not None
    return found


def csv(
    place: str | os.PathLike[str],
    *,
    schema: pa.Schema | None = None,
    columns: Sequence[str] | None = None,
    delimiter: str = ",",
    rows: int | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
) -> Source:
    """Read a CSV file from a local path or an http(s) URL, in pieces. The first line has the column names.

    Types are inferred from the first piece (128 kB), unless `schema` gives them. An empty field is null. Pass the
    number of rows as `rows` to get estimates. After a failure the source resumes at the next record, if the server
    supports range requests. `headers` are sent with every request (`Authorization`, for instance).

    Example:
        >>> import dovetail, pyarrow as pa, pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     path = pathlib.Path(directory, "orders.csv")
        ...     _ = path.write_text("id,note\\n1,a\\n2,b\\n")
        ...     orders = dovetail.sources.csv(path, rows=2)
        ...     [step.batch.to_pylist() for step in dovetail.progressive(orders, pa.table({"id": [2, 3]}), "id")]
        [[{'id': 2, 'note': 'b'}]]
    """
    from dovetail.sources.byte_streams import byte_stream
    from dovetail.sources.text_files import CsvSource

    return CsvSource(byte_stream(place, headers, timeout_s), schema, columns, rows, delimiter)


def json(
    place: str | os.PathLike[str],
    *,
    schema: pa.Schema | None = None,
    columns: Sequence[str] | None = None,
    rows: int | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
) -> Source:
    """Read newline-delimited JSON, one object per line, from a local path or an http(s) URL.

    Arguments are those of `csv`. Columns are those of the first piece (128 kB), or of `schema`. A column missing from a
    line is null.
    """
    from dovetail.sources.byte_streams import byte_stream
    from dovetail.sources.text_files import JsonSource

    return JsonSource(byte_stream(place, headers, timeout_s), schema, columns, rows)


def flight(
    location: str,
    dataset: str | bytes,
    *,
    same_order: bool = False,
    headers: Mapping[str, str] | None = None,
    **connection: Any,
) -> Source:
    """Read a dataset of an Arrow Flight server, given by path (text) or command (bytes).

    After a failure the source resumes at the next row if the server supports it, as `dovetail.sources.flight_server`
    does. Other servers are read again from the start if `same_order` asserts that they always send the same rows in the
    same order; otherwise the source cannot be resumed. `headers` are sent with every call (`authorization`, for
    instance). `connection` takes the arguments of `pyarrow.flight.connect`, such as `tls_root_certs`.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> with dovetail.sources.flight_server.TableServer({"orders": pa.table({"id": [1, 2]})}) as server:
        ...     orders = dovetail.sources.flight(f"grpc://127.0.0.1:{server.port}", "orders")
        ...     [step.results for step in dovetail.progressive(orders, pa.table({"id": [2, 3]}), ["id"])]
        [1]
    """
    from dovetail.sources.arrow_flight import FlightSource

    return FlightSource(location, dataset, same_order, headers or {}, **connection)


def postgres(
    dsn: str,
    query: str | None = None,
    *,
    table: str | None = None,
    key: str | Sequence[str] | None = None,
    batch_rows: int = 4096,
) -> Source:
    """Read the rows of a PostgreSQL query or table. Needs the extra `postgres`.

    `key` is one or more columns that are unique and not null, preferably with an index. Rows arrive in key order, and
    after a failure the source resumes after the last key. Without a key it cannot be resumed.

        orders = dovetail.sources.postgres("postgresql://reader@db.example/shop", table="orders", key="id")
    """
    if (query is None) == (table is None):
        raise InputError("give a query or a table, not both.")
    if batch_rows < 1:
        raise InputError(f"batch_rows must be positive; got {batch_rows}.")
    try:
        from dovetail.sources.postgresql import source_of
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is missing: pip install 'psycopg[binary]>=3.3'.") from error
    return source_of(dsn, query, table, key, batch_rows)
