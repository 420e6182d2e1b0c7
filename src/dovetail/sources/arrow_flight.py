"""Tables behind an Arrow Flight server.

    get_flight_info(dataset)  -->  schema, number of rows, whether the server goes on at a row
    do_get(ticket)            -->  record batches

A server that marks its answer with OFFSETS (`dovetail.sources.flight_server` does) takes tickets that name the row to
begin with, so that nothing is sent twice after a break. GROWING says so, too, and that more rows are still to come: the
stream lasts until they have, and only then the answer is OFFSETS. From any other server the rows are read again from
the start and those that came before are skipped; that is right only if it always gives the same rows in the same order,
so the caller has to say so.

How many rows a server announces is how many there must be: a stream that ends before is a break, even if it ends
without an error, and one with more rows is an error. -1 announces nothing.

A server may say that its rows are at other places. Headers, which may have a token in them, go to such a place only if
it is encrypted, or on the host that was named.
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
ANSWER_S = 30.0  # to say what a dataset is
CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),  # a new connection tries at once, also after others have failed
    ("grpc.keepalive_time_ms", 300_000),  # notices a peer that vanished; servers take more frequent pings for an attack
    ("grpc.keepalive_timeout_ms", 20_000),
]


T = TypeVar("T")

Endpoints = Callable[[Any], Iterator[tuple[Any, list[Any]]]]
"""From what a server says of a dataset to tickets and where to hand them in."""


class Available(NamedTuple):
    rows: int
    ended: bool  # there will be no more


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
        place = redacted(location) if scheme_of(location) else HIDDEN  # not a path, whatever it is
        self.name = f"{place}, {dataset!r}"  # it appears in errors and reports
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
        self.rows: int = -1 if info.app_metadata == GROWING else info.total_records  # -1: not known
        self.offsets = isinstance(dataset, str) and info.app_metadata in (OFFSETS, GROWING)
        self.resumable = self.offsets or same_order

    def open(self, position: int | None = None, until: int | None = None) -> FlightReading:
        return FlightReading(self, position or 0, until)

    def available(self) -> int | None:
        """How many rows there are now, if the server knows."""
        rows = int(self.ask(self.info).total_records)
        return None if rows < 0 else rows

    def available_rows(self) -> Available:
        """The same where the server takes offsets, and whether that is all."""
        info = self.ask(self.info)
        if not info.schema.equals(self.schema):
            raise SourceError("its columns have changed")
        return Available(int(info.total_records), info.app_metadata == OFFSETS)

    def endpoint_count(self) -> int:
        return len(self.ask(self.info).endpoints)

    def ask(self, question: Callable[[Any], T]) -> T:
        """What the server answers on a connection of its own; its errors in our words."""

        def answer() -> T:
            with self.connect() as client:
                return question(client)

        return self.in_our_words(answer)

    def in_our_words(self, action: Callable[[], T]) -> T:
        """What an action gives. Of an error of Flight only the message is kept, without what may be secret.

        An answer that will not change is a SourceError, which ends the trying. Neither is raised while Flight's own
        error is handled: that would be shown with it.
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
        """One of the places where rows are that may see what is sent with a call; None: the server that was asked."""
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
        """Tickets and where to hand them in; no place means the server that was asked."""
        if self.offsets:
            yield flight.Ticket(ticket(str(self._dataset), offset, until)), []
            return
        for endpoint in info.endpoints:
            yield endpoint.ticket, endpoint.locations


class FlightReading:
    """One pass over the rows from a position on, to the end or to another one."""

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
        self._is_part = is_part  # of the rows that the server has announced
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
            self._stream.cancel()  # a read under way ends
        self._pieces.close()

    def _read(self, position: int, until: int | None) -> Generator[Piece, None, None]:
        source, first = self._source, position
        skip = 0 if source.offsets else position
        sent = position - skip  # the row behind all that has come, skipped or not
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
                        return  # it knows no other end than its own
            self._check_end(client, sent, first, until)

    def _check_end(self, client: Any, sent: int, first: int, until: int | None) -> None:
        """Tell the end from a break that looks like it: a server may end a stream early, without an error."""
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
        if self._left:  # meanwhile
            self._stream.cancel()
        for chunk in self._stream:
            if chunk.data is not None:
                yield chunk.data


class FlightEndpoint:
    """One of several endpoints of a dataset, as a source: the rows behind its ticket, from the first to the last."""

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
    """The rows of a dataset from this one on, all or up to another."""
    wanted = {"name": name, "offset": offset} | ({} if until is None else {"rows": until - offset})
    return json.dumps(wanted).encode()
