"""A small Flight server for tables. An interrupted join can resume at the next row.

python -m dovetail.sources.flight_server --port 8815 orders=orders.parquet customers=customers.parquet
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from dovetail.columns.batches import slices, table_batches
from dovetail.core.tables import dataset_of
from dovetail.sources.arrow_flight import GROWING, OFFSETS, ticket
from dovetail.sources.paced import Paced, PacedReading

GATHER_S = 0.02  # rows that become available within this time are sent together


class TableServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow ships no types
    """Serves tables by name, all rows at once or each row when it is due. `port` is known after construction.

    `security`: certificates and middleware, as in `pyarrow.flight.FlightServerBase`.
    """

    def __init__(
        self,
        tables: Mapping[str, pa.Table | Paced],
        location: str = "grpc://127.0.0.1:0",
        batch_rows: int = 4096,
        **security: Any,
    ) -> None:
        super().__init__(location, **security)
        self._tables = dict(tables)
        self._batch_rows = batch_rows
        self._readings: set[PacedReading] = set()

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        return (self._info(name) for name in self._tables)

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        return self._info(b"/".join(descriptor.path or []).decode())

    def do_get(self, context: Any, ticket: Any) -> Any:
        wanted = json.loads(ticket.ticket)
        table, offset = self._table(wanted["name"]), wanted["offset"]
        total = table.rows.num_rows if isinstance(table, Paced) else table.num_rows
        rows = wanted.get("rows", total - offset)
        if not 0 <= offset <= offset + rows <= total:
            raise pa.ArrowInvalid(f"{wanted['name']} has {total:,} rows; {offset + max(0, rows):,} is out of range")
        if isinstance(table, Paced):
            return flight.GeneratorStream(table.schema, self._as_due(table, offset, rows))
        batches = table_batches(table, offset, rows, self._batch_rows)
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(table.schema, batches))

    def shutdown(self) -> None:
        for reading in list(self._readings):
            reading.close()
        super().shutdown()

    def _as_due(self, table: Paced, offset: int, rows: int) -> Iterator[pa.RecordBatch]:
        reading = table.open(offset)
        self._readings.add(reading)
        try:
            while rows and (piece := next(reading, None)) is not None:
                batch = piece.batch.slice(0, rows)
                rows -= batch.num_rows
                yield from slices(batch, self._batch_rows)
                time.sleep(GATHER_S)
        finally:
            self._readings.discard(reading)

    def _info(self, name: str) -> Any:
        table = self._table(name)
        rows, ended = (table.due(), table.ended()) if isinstance(table, Paced) else (table.num_rows, True)
        descriptor = flight.FlightDescriptor.for_path(name)
        endpoints = [flight.FlightEndpoint(ticket(name, 0), [])]
        marked = OFFSETS if ended else GROWING
        return flight.FlightInfo(
            table.schema, descriptor, endpoints, total_records=rows, ordered=True, app_metadata=marked
        )

    def _table(self, name: str) -> pa.Table | Paced:
        if name not in self._tables:
            raise pa.ArrowKeyError(f"no table is called {name!r}; there are {', '.join(sorted(self._tables))}")
        return self._tables[name]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m dovetail.sources.flight_server", description=__doc__)
    parser.add_argument("tables", nargs="+", metavar="name=file", help="a name and its Parquet, CSV, JSON or ORC file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="a free port by default")
    parser.add_argument("--batch-rows", type=int, default=4096)
    parser.add_argument("--rows-per-second", type=float, help="throttle the rows to this rate; all at once by default")
    given = parser.parse_args(arguments)
    named = dict(entry.split("=", 1) for entry in given.tables)
    tables = {name: dataset_of(Path(path)).to_table() for name, path in named.items()}
    if given.rows_per_second:
        tables = {name: _build_paced(table, given.rows_per_second) for name, table in tables.items()}
    server = TableServer(tables, f"grpc://{given.host}:{given.port}", given.batch_rows)
    sys.stdout.write(f"grpc://{given.host}:{server.port}\n")
    sys.stdout.flush()
    server.serve()


def _build_paced(table: pa.Table, rows_per_second: float) -> Paced:
    paced = Paced(table, np.arange(1, table.num_rows + 1) / rows_per_second)
    paced.begin()
    return paced


if __name__ == "__main__":
    main()
