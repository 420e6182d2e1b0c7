"""Tables behind an Arrow Flight server.

    get_flight_info(dataset)  -->  schema, number of rows, whether the server goes on at a row
    do_get(ticket)            -->  record batches

A server that marks its answer with OFFSETS (`dovetail.sources.flight_server` does) takes tickets that name the row to
begin with, so that nothing is sent twice after a break. GROWING says so, too, and that more rows are still to come: the
stream lasts until they have, and only then the answer is OFFSETS. From any other server the rows are read again from
the start and those that came before are skipped; that is right only if it always gives the same rows in the same order,
so the caller has to say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import flight

from dovetail.core.rows import slices
from dovetail.errors import SourceError
from dovetail.sources.protocol import Piece, cause_of

OFFSETS = b"dovetail: tickets with offsets"
GROWING = b"dovetail: tickets with offsets, more rows to come"
FINAL = (
    flight.FlightUnauthenticatedError,
    flight.FlightUnauthorizedError,
    pa.ArrowInvalid,
    pa.ArrowKeyError,
    pa.ArrowNotImplementedError,
)
"""Errors that a retry cannot fix."""
CREDENTIALS = re.compile(r"//[^/@]*@")
ANSWER_S = 30.0  # to say what a dataset is
CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),  # a new connection tries at once, whatever happened to earlier ones
    ("grpc.keepalive_time_ms", 300_000),  # notices a peer that vanished; servers take more frequent pings for an attack
    ("grpc.keepalive_timeout_ms", 20_000),
]


class FlightSource:
    """A dataset of a Flight server, by path (text) or command (bytes), in pieces of at most `batch_rows`."""

    def __init__(
        self,
        location: str,
        dataset: str | bytes,
        same_order: bool,
        headers: Mapping[str, str],
        batch_rows: int | None = None,
        **connection: Any,
    ) -> None:
        self.name = f"{CREDENTIALS.sub('//', location)}, {dataset!r}"  # it appears in errors and reports
        self.batch_rows = batch_rows
        self._location = location
        self._dataset = dataset
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self._connection = {"generic_options": CHANNEL, **connection}
        try:
            with self.connect() as client:
                info = self.info(client)
        except (flight.FlightError, pa.ArrowException) as error:
            raise SourceError(f"cannot read {self.name}: {cause_of(error)}.") from error
        self.schema: pa.Schema = info.schema
        self.rows: int = -1 if info.app_metadata == GROWING else info.total_records  # -1: not known
        self.offsets = isinstance(dataset, str) and info.app_metadata in (OFFSETS, GROWING)
        self.resumable = self.offsets or same_order

    def open(self, position: int | None = None, until: int | None = None) -> FlightReading:
        return FlightReading(self, position or 0, until)

    def available(self) -> int | None:
        """How many rows there are now, if the server knows."""
        with final_errors(), self.connect() as client:
            rows = int(self.info(client).total_records)
        return None if rows < 0 else rows

    def connect(self, location: Any = None) -> Any:
        return flight.connect(location or self._location, **self._connection)

    def options(self, timeout_s: float | None = None) -> Any:
        return flight.FlightCallOptions(timeout=timeout_s, headers=self._headers)

    def info(self, client: Any) -> Any:
        by_path, dataset = isinstance(self._dataset, str), self._dataset
        made = flight.FlightDescriptor.for_path(dataset) if by_path else flight.FlightDescriptor.for_command(dataset)
        return client.get_flight_info(made, self.options(ANSWER_S))

    def endpoints(self, info: Any, offset: int, until: int | None) -> Iterator[tuple[Any, list[Any]]]:
        """Tickets and where to hand them in; no place means the server that was asked."""
        if self.offsets:
            yield flight.Ticket(ticket(str(self._dataset), offset, until)), []
            return
        for endpoint in info.endpoints:
            yield endpoint.ticket, endpoint.locations


class FlightReading:
    """One pass over the rows from a position on, to the end or to another one."""

    def __init__(self, source: FlightSource, position: int, until: int | None) -> None:
        self._source = source
        self._stream: Any = None
        self._left = False
        self._pieces = self._read(position, until)

    def __next__(self) -> Piece:
        return next(self._pieces)

    def close(self) -> None:
        self._left = True
        if self._stream is not None:
            self._stream.cancel()  # a read under way ends
        self._pieces.close()

    def _read(self, position: int, until: int | None) -> Generator[Piece, None, None]:
        source = self._source
        skip = 0 if source.offsets else position
        with final_errors(), source.connect() as client:
            info = source.info(client)
            if not info.schema.equals(source.schema) or (source.rows >= 0 and info.total_records != source.rows):
                raise SourceError(f"its rows have changed: {info.total_records:,} of them instead of {source.rows:,}")
            for ticket_, places in source.endpoints(info, position, until):
                for batch in self._stream_of(client, ticket_, places):
                    fresh = batch.slice(min(skip, batch.num_rows))
                    skip -= batch.num_rows - fresh.num_rows
                    if until is not None:
                        fresh = fresh.slice(0, until - position)
                    for part in slices(fresh, source.batch_rows or max(1, fresh.num_rows)):
                        position += part.num_rows
                        yield Piece(part, position)
                    if position == until:
                        return
            if source.offsets and not self._check_end(client, position, until):
                raise ConnectionError(f"the stream ended at row {position:,}, before the last row")

    def _check_end(self, client: Any, position: int, until: int | None) -> bool:
        """Whether this is the end, or a break that looks like it."""
        if until is not None or self._source.rows >= 0:
            return position == (self._source.rows if until is None else until)
        info = self._source.info(client)
        return bool(info.app_metadata == OFFSETS and info.total_records == position)

    def _stream_of(self, client: Any, ticket_: Any, places: list[Any]) -> Iterator[pa.RecordBatch]:
        if places:
            with self._source.connect(places[0]) as other:
                yield from self._stream_of(other, ticket_, [])
            return
        self._stream = client.do_get(ticket_, self._source.options())
        if self._left:  # meanwhile
            self._stream.cancel()
        for chunk in self._stream:
            if chunk.data is not None:
                yield chunk.data


def ticket(name: str, offset: int, until: int | None = None) -> bytes:
    """The rows of a dataset from this one on, all or up to another."""
    wanted = {"name": name, "offset": offset} | ({} if until is None else {"rows": until - offset})
    return json.dumps(wanted).encode()


@contextmanager
def final_errors() -> Iterator[None]:
    """Let answers that will not change end the trying."""
    try:
        yield
    except FINAL as error:
        raise SourceError(cause_of(error)) from error
