"""How rows arrive: from tables, readers and remote sources.

    dovetail.sources.flight("grpc://host:8815", "orders")                      for dovetail.progressive
    dovetail.sources.postgres("postgresql://host/db", table="orders", key="id")
    dovetail.sources.csv("https://host/orders.csv", rows=1_000_000)            also for dovetail.join
    dovetail.sources.parquet("orders/", columns=["id", "amount"])             also for dovetail.join

Anything that follows the protocol `Source` is one as well.
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
    """A Parquet file, or a directory of them in the order of their names: all columns, or some.

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
    """A CSV file of this machine or of an http or https URL, read piece by piece. Its first line has the names.

    Types are those of the first piece (128 kB), or those that `schema` gives. Nothing between two commas is null. With
    `rows`, how many there are, estimates are possible. After a failure the source resumes at the next record, if the
    server takes ranges. `headers` go with every request (`Authorization`, for instance).

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
    """Newline-delimited JSON, an object in each line, of this machine or of an http or https URL.

    Arguments are those of `csv`. Columns are those of the first piece (128 kB), or those of `schema`; a line
    without one has null there.
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
    """A dataset of an Arrow Flight server, by path (text) or command (bytes).

    After a failure the source resumes at the next row if the server supports it, as `dovetail.sources.flight_server`
    does. Any other server is read again from the start, if `same_order` asserts that it always sends the same rows in
    the same order; otherwise it cannot be resumed. `headers` go with every call (`authorization`, for instance),
    `connection` is what `pyarrow.flight.connect` takes, such as `tls_root_certs`.

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
    """The rows of a PostgreSQL query or table. Needs the extra `postgres`.

    `key` is one or several columns that are unique and not null, best with an index: rows arrive in its order, and
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
