"""Reads tables from an Arrow Flight server.

    get_flight_info(dataset)  -->  schema, number of rows, whether reading can start at a row
    do_get(ticket)            -->  record batches

A server that marks its answer with OFFSETS (as `dovetail.sources.flight_server` does) accepts tickets with the row to
start at, so nothing is sent twice after a break. GROWING means the same, but more rows are still to come: the stream
stays open until they have arrived, and only then is the answer OFFSETS. Other servers are read again from the start,
and known rows are skipped. This is correct only if they always send the same rows in the same order, so the caller has
to assert it.

A stream must have as many rows as the server announces: one with fewer is a break, even if it ends without an error,
and one with more is an error. -1 announces nothing.

A server may redirect to other locations. Headers, which may contain a token, are sent there only if the connection is
encrypted or the host is the given one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import flight

from dovetail.columns.batches import slices
from dovetail.core.addresses import HIDDEN, UNQUOTED, parse_address, redacted, scheme_of, without_secrets
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
TLS = "grpc+tls"
SAME_CONNECTION = "arrow-flight-reuse-connection"
ANSWER_S = 30.0  # for describing a dataset
CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),  # a new connection tries at once, even if others have failed
    ("grpc.keepalive_time_ms", 300_000),  # detects a vanished peer; servers treat more frequent pings as an attack
    ("grpc.keepalive_timeout_ms", 20_000),
]


T = TypeVar("T")

Endpoints = Callable[[Any], Iterator[tuple[Any, list[Any]]]]
"""Turns a server's description of a dataset into tickets and the locations to send them to."""


class Available(NamedTuple):
    rows: int
    ended: bool  # no more rows will come


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
        place = redacted(location) if scheme_of(location) else HIDDEN  # not an address: hide it
        self.name = f"{place}, {dataset!r}"  # shown in errors and reports
        self.batch_rows = batch_rows
        self._location = location
        self._dataset = dataset
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self._connection = {"generic_options": CHANNEL, **connection}
        if parse_address(location) is None:
            raise SourceError(f"cannot read {self.name}: this address cannot be read. {UNQUOTED}")
        try:
            info = self.ask(self.info)
        except (SourceError, ConnectionError) as error:
            raise SourceError(f"cannot read {self.name}: {error}.") from None
        self.schema: pa.Schema = info.schema
        self.rows: int = -1 if info.app_metadata == GROWING else info.total_records  # -1: unknown
        self.offsets = isinstance(dataset, str) and info.app_metadata in (OFFSETS, GROWING)
        self.resumable = self.offsets or same_order

    def open(self, position: int | None = None, until: int | None = None) -> FlightReading:
        return FlightReading(self, position or 0, until)

    def available(self) -> int | None:
        """The current number of rows, if the server knows it."""
        rows = int(self.ask(self.info).total_records)
        return None if rows < 0 else rows

    def available_rows(self) -> Available:
        """The current number of rows and whether it is final, if the server supports offsets."""
        info = self.ask(self.info)
        if not info.schema.equals(self.schema):
            raise SourceError("its columns have changed")
        return Available(int(info.total_records), info.app_metadata == OFFSETS)

    def endpoint_count(self) -> int:
        return len(self.ask(self.info).endpoints)

    def ask(self, question: Callable[[Any], T]) -> T:
        """The server's answer, over a separate connection. Errors are ours."""

        def answer() -> T:
            with self.connect() as client:
                return question(client)

        return self.in_our_words(answer)

    def in_our_words(self, action: Callable[[], T]) -> T:
        """Run an action. Of a Flight error only the message is kept, without secrets.

        A permanent failure is a SourceError, which is not retried. It is raised outside the handler of Flight's own
        error, which would be shown with it otherwise.
        """
        try:
            return action()
        except FINAL as error:
            failure: Exception = SourceError(self._clean(error))
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            failure = ConnectionError(self._clean(error))
        raise failure

    def _clean(self, error: BaseException) -> str:
        tokens = [word for _, value in self._headers for word in (value.decode(), *value.decode().split())]
        return cause_of(error, lambda text: without_secrets(text, self._location, tokens))

    def connect(self, location: Any = None) -> Any:
        return flight.connect(location or self._location, **self._connection)

    def choose_place(self, places: list[Any]) -> Any:
        """A location of the rows to which the headers may be sent. None: the server that was asked."""
        asked = urlsplit(self._location)
        for place in places:
            uri = place.uri.decode()
            parts = urlsplit(uri)
            if parts.scheme == SAME_CONNECTION:
                return None
            if parts.scheme == TLS or (asked.scheme != TLS and parts.hostname == asked.hostname):
                return place
            if not self._headers and asked.scheme != TLS:
                return place
        told = ", ".join(sorted({redacted(place.uri.decode()) for place in places}))
        raise SourceError(
            f"it says that its rows are at {told}, where nothing is encrypted: no token is sent there. "
            "Let the server name places with grpc+tls://"
        )

    def options(self, timeout_s: float | None = None) -> Any:
        return flight.FlightCallOptions(timeout=timeout_s, headers=self._headers)

    def info(self, client: Any) -> Any:
        by_path, dataset = isinstance(self._dataset, str), self._dataset
        made = flight.FlightDescriptor.for_path(dataset) if by_path else flight.FlightDescriptor.for_command(dataset)
        return client.get_flight_info(made, self.options(ANSWER_S))

    def endpoints(self, info: Any, offset: int, until: int | None) -> Iterator[tuple[Any, list[Any]]]:
        """Tickets and the locations to send them to. No location means the server that was asked."""
        if self.offsets:
            yield flight.Ticket(ticket(str(self._dataset), offset, until)), []
            return
        for endpoint in info.endpoints:
            yield endpoint.ticket, endpoint.locations


class FlightReading:
    """One pass over the rows from a position to the end or to another position."""

    def __init__(
        self,
        source: FlightSource,
        position: int,
        until: int | None,
        endpoints: Endpoints | None = None,
        is_part: bool = False,
    ) -> None:
        self._source = source
        self._endpoints = endpoints
        self._is_part = is_part  # of the announced rows
        self._stream: Any = None
        self._left = False
        self._pieces = self._read(position, until)

    def __next__(self) -> Piece:
        piece = self._source.in_our_words(lambda: next(self._pieces, None))
        if piece is None:
            raise StopIteration
        return piece

    def close(self) -> None:
        self._left = True
        if self._stream is not None:
            self._stream.cancel()  # stops a read in progress
        self._pieces.close()

    def _read(self, position: int, until: int | None) -> Generator[Piece, None, None]:
        source, first = self._source, position
        skip = 0 if source.offsets else position
        sent = position - skip  # the row after all that have been received, skipped or not
        most = until if source.offsets and until is not None else source.rows
        with source.connect() as client:
            info = source.info(client)
            if not info.schema.equals(source.schema) or (source.rows >= 0 and info.total_records != source.rows):
                raise SourceError(f"its rows have changed: {info.total_records:,} of them instead of {source.rows:,}")
            chosen = source.endpoints(info, position, until) if self._endpoints is None else self._endpoints(info)
            for ticket_, places in chosen:
                for batch in self._stream_of(client, ticket_, places):
                    sent += batch.num_rows
                    if 0 <= most < sent:
                        raise _too_many(most, asked_for=most == until)
                    fresh = batch.slice(min(skip, batch.num_rows))
                    skip -= batch.num_rows - fresh.num_rows
                    if until is not None:
                        fresh = fresh.slice(0, until - position)
                    for part in slices(fresh, source.batch_rows or max(1, fresh.num_rows)):
                        position += part.num_rows
                        yield Piece(part, position)
                    if position == until and not source.offsets:
                        return  # the stream's own end is the only one it has
            self._check_end(client, sent, first, until)

    def _check_end(self, client: Any, sent: int, first: int, until: int | None) -> None:
        """Distinguish the end from a break: a server may end a stream early, without an error."""
        source, rows = self._source, self._source.rows
        if source.offsets and until is None and rows < 0:
            info = source.info(client)
            rows = info.total_records
            if info.app_metadata == OFFSETS and rows < sent:
                raise _too_many(rows)
            if info.app_metadata != OFFSETS:
                raise ConnectionError(f"the stream ended at row {sent:,}, and more rows are to come")
        if until is None and rows >= 0 and not self._is_part:
            if sent < rows:
                raise ConnectionError(f"the stream ended at row {sent:,}, before the last of {rows:,} rows")
        elif sent < (least := first if until is None else until):
            raise ConnectionError(f"the stream ended at row {sent:,}, before row {least:,}")

    def _stream_of(self, client: Any, ticket_: Any, places: list[Any]) -> Iterator[pa.RecordBatch]:
        place = self._source.choose_place(places) if places else None
        if place is not None:
            with self._source.connect(place) as other:
                yield from self._stream_of(other, ticket_, [])
            return
        self._stream = client.do_get(ticket_, self._source.options())
        if self._left:  # closed meanwhile
            self._stream.cancel()
        for chunk in self._stream:
            if chunk.data is not None:
                yield chunk.data


class FlightEndpoint:
    """One of several endpoints of a dataset, as a source: the rows of its ticket."""

    def __init__(self, whole: FlightSource, number: int, of: int) -> None:
        self.name, self.schema, self.resumable = f"{whole.name}, endpoint {number}", whole.schema, whole.resumable
        self._whole, self._number, self._of = whole, number, of

    def open(self, position: int | None = None) -> FlightReading:
        return FlightReading(self._whole, position or 0, None, self._endpoint, is_part=self._of > 1)

    def _endpoint(self, info: Any) -> Iterator[tuple[Any, list[Any]]]:
        if len(info.endpoints) != self._of:
            raise SourceError(f"its endpoints have changed: {len(info.endpoints)} of them instead of {self._of}")
        endpoint = info.endpoints[self._number]
        yield endpoint.ticket, endpoint.locations


def _too_many(rows: int, *, asked_for: bool = False) -> SourceError:
    wanted = f"those up to row {rows:,} that were asked for" if asked_for else f"the {rows:,} that it has announced"
    return SourceError(f"it sends more rows than {wanted}: some came twice, or the number is wrong")


def ticket(name: str, offset: int, until: int | None = None) -> bytes:
    """A ticket for the rows of a dataset from `offset` to the end, or to `until`."""
    wanted = {"name": name, "offset": offset} | ({} if until is None else {"rows": until - offset})
    return json.dumps(wanted).encode()
