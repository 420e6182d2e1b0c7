"""The parts of remote sources that need no Spark: buffered rows, offsets, options."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from datetime import time as clock_time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from tests.patience import PATIENCE_S, wait_until
from tests.sources.scripted import Gate, Scripted

from dovetail.errors import InputError, SourceError
from dovetail.sources.flight_server import TableServer
from dovetail.sources.paced import Paced
from dovetail.sources.reader import Reader, Retry
from dovetail.testing.arrival_times import steady

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")

from dovetail.spark.sources.prefetch import Offset, PrefetchBuffer
from dovetail.spark.sources.remote import FlightFormat

TABLE = pa.table({"n": range(100)})
SOON = Retry(tries=3, first_pause_ms=1)


def inflow(source: Scripted, start: Offset | None = None, **options: Any) -> PrefetchBuffer:
    return PrefetchBuffer(Reader(source, SOON), start or Offset(), **options)


def numbers(batches: list[pa.RecordBatch] | None) -> list[int]:
    return [n for batch in batches or [] for n in batch["n"].to_pylist()]


def read_all(rows: PrefetchBuffer, most_rows: int | None) -> list[tuple[Offset, list[int]]]:
    """Read micro-batches until the end."""
    steps, reached = [], Offset()
    while not reached.ended:
        before, reached = reached, rows.latest(reached, most_rows, wait_s=PATIENCE_S)
        steps.append((reached, numbers(rows.rows_between(before, reached))))
    return steps


@pytest.mark.parametrize("most_rows", [7, 20, 1000, None])
def test_each_row_once_and_never_more_than_allowed(most_rows: int | None) -> None:
    steps = read_all(inflow(Scripted(TABLE, batch_rows=7, breaks=[35])), most_rows)
    assert [n for _, found in steps for n in found] == list(range(100))
    assert all(len(found) <= (most_rows or 100) for _, found in steps)


def test_asking_does_not_wait_for_a_source_that_stalls() -> None:
    gate = Gate(14)
    rows = inflow(Scripted(TABLE, batch_rows=7, gates=[gate]))
    assert gate.reached.wait(PATIENCE_S)
    reached = rows.latest(Offset(), None, 0.0)
    assert reached == Offset(14, 14)
    assert rows.latest(reached, None, 0.0) == reached
    gate.opened.set()
    assert rows.latest(reached, None, wait_s=PATIENCE_S).rows > 14


def test_what_was_asked_for_can_be_had_again_until_spark_goes_on() -> None:
    gate = Gate(28)
    rows = inflow(Scripted(TABLE, batch_rows=7, gates=[gate]))
    assert gate.reached.wait(PATIENCE_S)
    first = rows.latest(Offset(), 14, 0.0)
    assert rows.latest(Offset(), 14, 0.0) == first
    assert numbers(rows.rows_between(Offset(), first)) == list(range(14))
    second = rows.latest(first, 14, 0.0)
    assert rows.rows_between(Offset(), first) is None  # has to be read again
    assert rows.rows_between(Offset(), second) is None  # not only half of it
    assert numbers(rows.rows_between(first, second)) == list(range(14, 28))
    gate.opened.set()
    rows.close()


def test_a_full_line_waits_for_spark() -> None:
    source = Scripted(TABLE, batch_rows=10)
    rows = inflow(source, capacity=200)  # bytes; a batch has 80
    reached = Offset()
    for joined in range(0, 71, 10):
        reached = rows.latest(reached, 10, wait_s=PATIENCE_S)
        wait_until(lambda most=joined + 30: source.given >= most)  # two are buffered, one is held by the thread
        assert source.given == joined + 30
    rows.close()


def test_what_came_before_a_break_is_given_before_the_error() -> None:
    rows = inflow(Scripted(TABLE, batch_rows=7, breaks=[14], resumable=False))
    reached = Offset()
    while reached.rows < 14:
        reached = rows.latest(reached, None, wait_s=PATIENCE_S)
        assert not reached.ended
    with pytest.raises(SourceError, match="failed after 14 rows: the line is dead"):
        rows.latest(reached, None, wait_s=PATIENCE_S)


class UpTo(Scripted):
    def open(self, position: int | None = None, until: int | None = None) -> Any:
        return itertools.takewhile(lambda piece: until is None or piece.position <= until, super().open(position))


def test_what_is_there_now_is_not_the_end() -> None:
    rows = inflow(UpTo(TABLE, batch_rows=10), until=30)
    reached = Offset()
    while reached.rows < 30:
        reached = rows.latest(reached, None, wait_s=PATIENCE_S)
    assert rows.latest(reached, None, wait_s=PATIENCE_S) == Offset(30, 30)


def test_a_source_that_is_polled_goes_on_behind_its_end() -> None:
    source = Scripted(TABLE.slice(0, 20), batch_rows=20)
    rows = inflow(source, poll_s=0.001)
    reached = rows.latest(Offset(), None, wait_s=PATIENCE_S)
    assert reached == Offset(20, 20)
    source.rows = TABLE.to_batches()[0]
    assert rows.latest(reached, None, wait_s=PATIENCE_S).rows >= 40
    rows.close()


@pytest.mark.parametrize(
    "position",
    [
        None,
        4096,
        (1, "a'b", None, True, 2.5),
        (date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 4, UTC), clock_time(12, 34, 56, 7)),
        (Decimal("1.20"), b"\x00\xff"),
    ],
)
def test_offsets_come_back_from_the_checkpoint(position: Any) -> None:
    offset = Offset(3, position, True)
    document = json.loads(json.dumps(offset.to_json()))
    assert Offset.read(document) == offset
    assert all(isinstance(value, int | str | bool) for value in document.values())


@pytest.fixture(scope="module")
def location() -> Iterator[str]:
    with TableServer({"t": TABLE, "marked": pa.table({"_end": [True]})}) as server:
        yield f"grpc://127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"dataset": ""}, 'the option dataset is missing: .option."dataset", "orders"'),
        ({"rows": "3"}, r"rows: no such option\. There are location, dataset"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger must be a positive number; got '0'"),
        ({"tries": "many"}, "tries must be a positive number; got 'many'"),
        ({"end": "yes"}, "end must be true or false; got 'yes'"),
        ({"tlsRootCerts": "nowhere.pem"}, "tlsRootCerts cannot be read"),
        ({"dataset": "marked", "end": "true"}, "a column is called _end, which is reserved"),
    ],
)
def test_bad_options_are_named(location: str, options: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        FlightFormat({"location": location, "dataset": "t", **options}).schema()


def test_a_micro_batch_is_the_same_from_memory_and_from_the_server(location: str) -> None:
    made = FlightFormat({"location": location, "dataset": "t", "end": "true", "maxRowsPerTrigger": "30"})
    reader, restarted = made.streamReader(made.schema()), made.streamReader(made.schema())
    start, found = reader.initialOffset(), []
    while True:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start and start["ended"]:
            break
        tasks = pickle.loads(pickle.dumps(reader))
        batches = [pa.Table.from_batches(tasks.read(part)) for part in reader.partitions(start, end)]
        again = [pa.Table.from_batches(tasks.read(part)) for part in restarted.partitions(start, end)]
        assert again == batches
        found += [row for table in batches for row in table.to_pylist()]
        assert end["rows"] - start["rows"] <= 30
        start = end
    reader.stop()
    assert found == [{"n": n, "_end": None} for n in range(100)] + [{"n": None, "_end": True}]


def test_rows_that_have_changed_are_not_taken_for_the_same(location: str) -> None:
    made = FlightFormat({"location": location, "dataset": "t"})
    reader = made.streamReader(made.schema())
    (part,) = reader.partitions(Offset(10, 10).to_json(), Offset(40, 30).to_json())
    with pytest.raises(SourceError, match="has changed its rows: 20 instead of 30 between 10 and 30"):
        list(reader.read(part))


def test_what_is_there_now_may_be_less_than_before() -> None:
    """A restarted server may have fewer rows."""
    with TableServer({"t": Paced(TABLE, steady(100, 1e9))}) as server:
        made = FlightFormat({"location": f"grpc://127.0.0.1:{server.port}", "dataset": "t"})
        reader = made.streamReader(made.schema())
        reader.prepareForTriggerAvailableNow()
        start = Offset(50, 50).to_json()
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
        reader.stop()


class Doorkeeper(flight.ServerMiddlewareFactory):
    """Accepts calls with the right headers."""

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> None:
        if (headers.get("authorization"), headers.get("x-tenant")) != (["Bearer x"], ["Orders"]):
            raise flight.FlightUnauthenticatedError("who are you?")


class Guarded(flight.FlightServerBase):
    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0", middleware={"doorkeeper": Doorkeeper()})

    def get_flight_info(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> Any:
        return flight.FlightInfo(TABLE.schema, descriptor, [flight.FlightEndpoint(b"t", [])], len(TABLE), -1)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> Any:
        return flight.RecordBatchStream(TABLE)


def test_headers_are_options() -> None:
    """They are sent with every call, without the prefix."""
    with Guarded() as server:
        place = {"location": f"grpc://127.0.0.1:{server.port}", "dataset": "t", "tries": "1"}
        headers = {"header.authorization": "Bearer x", "header.X-Tenant": "Orders"}
        made = FlightFormat({**place, **headers})
        reader = made.reader(made.schema())
        assert numbers([batch for part in reader.partitions() for batch in reader.read(part)]) == list(range(100))
        for wrong in ({}, {"header.authorization": "Bearer x"}, {**headers, "header.X-Tenant": "orders"}):
            with pytest.raises(SourceError, match="who are you"):
                FlightFormat({**place, **wrong})
