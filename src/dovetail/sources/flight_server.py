"""A small Flight server for tables, from which a join that was interrupted can go on at the next row.

python -m dovetail.sources.flight_server --port 8815 orders=orders.parquet customers=customers.parquet
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from dovetail.files import dataset_of
from dovetail.sources.arrow_flight import OFFSETS, ticket


class TableServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow ships no types
    """Serves tables by name. Its `port` is known once it is made."""

    def __init__(
        self, tables: Mapping[str, pa.Table], location: str = "grpc://127.0.0.1:0", batch_rows: int = 4096
    ) -> None:
        super().__init__(location)
        self._tables = dict(tables)
        self._batch_rows = batch_rows

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        return (self._info(name) for name in self._tables)

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        return self._info(b"/".join(descriptor.path or []).decode())

    def do_get(self, context: Any, ticket: Any) -> Any:
        wanted = json.loads(ticket.ticket)
        table, offset = self._table(wanted["name"]), wanted["offset"]
        if not 0 <= offset <= table.num_rows:
            raise pa.ArrowInvalid(f"{wanted['name']} has {table.num_rows:,} rows; {offset:,} is none of them")
        batches = table.slice(offset).to_batches(max_chunksize=self._batch_rows)
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(table.schema, batches))

    def _info(self, name: str) -> Any:
        table = self._table(name)
        descriptor = flight.FlightDescriptor.for_path(name)
        endpoints = [flight.FlightEndpoint(ticket(name, 0), [])]
        return flight.FlightInfo(
            table.schema, descriptor, endpoints, total_records=table.num_rows, ordered=True, app_metadata=OFFSETS
        )

    def _table(self, name: str) -> pa.Table:
        if name not in self._tables:
            raise pa.ArrowKeyError(f"no table is called {name!r}; there are {', '.join(sorted(self._tables))}")
        return self._tables[name]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dovetail.sources.flight_server", description=__doc__)
    parser.add_argument("tables", nargs="+", metavar="name=file", help="a name and its Parquet, CSV, JSON or ORC file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="any free one unless given")
    parser.add_argument("--batch-rows", type=int, default=4096)
    given = parser.parse_args(arguments)
    named = dict(entry.split("=", 1) for entry in given.tables)
    tables = {name: dataset_of(Path(path)).to_table() for name, path in named.items()}
    server = TableServer(tables, f"grpc://{given.host}:{given.port}", given.batch_rows)
    sys.stdout.write(f"grpc://{given.host}:{server.port}\n")
    sys.stdout.flush()
    server.serve()


if __name__ == "__main__":
    main()
