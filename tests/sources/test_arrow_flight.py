"""Joins of tables on real Flight servers that stall, slow down, break, die and come back."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import flight
from tests.patience import PATIENCE_S, wait_for_threads_to_end
from tests.sources.proxy import Proxy

import dovetail
from dovetail.errors import InputError, SourceError
from dovetail.sources import Retry
from dovetail.sources.arrow_flight import FlightEndpoint
from dovetail.sources.flight_server import TableServer
from dovetail.sources.paced import Paced
from dovetail.sources.reader import Reader
from dovetail.testing.arrival_times import steady

ON = "l.k = r.k"
ROWS = 30_000
ORDERS = pa.table({"k": np.arange(ROWS) % 1000, "row": np.arange(ROWS), "pad": [f"{i:0100}" for i in range(ROWS)]})
CUSTOMERS = pa.table({"k": np.arange(0, 1000, 4), "row": np.arange(250)})
PAIRS = ROWS // 4
SOME = 4000
SOON = Retry(tries=8, first_pause_ms=5, longest_pause_ms=20)
PATIENT = Retry(tries=2000, first_pause_ms=5, longest_pause_ms=20)


class Process:
    """A server in a separate process."""

    def __init__(self, table: Path) -> None:
        command = [sys.executable, "-m", "dovetail.sources.flight_server", f"orders={table}", "--batch-rows", "500"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def port(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline().rsplit(":", 1)[1])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module", autouse=True)
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Process]]:
    """Two servers that start while other tests run."""
    file = tmp_path_factory.mktemp("tables") / "orders.parquet"
    pq.write_table(ORDERS, file)
    processes = [Process(file), Process(file)]
    yield processes
    for process in processes:
        process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[TableServer]:
    tables = {"orders": ORDERS, "some": ORDERS.slice(0, SOME), "none": ORDERS.slice(0, 0), "customers": CUSTOMERS}
    with TableServer(tables, batch_rows=500) as server:
        yield server


@pytest.fixture
def line(server: TableServer) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


def orders(proxy: Proxy, **options: Any) -> Any:
    return dovetail.sources.flight(f"grpc://127.0.0.1:{proxy.port}", "orders", **options)


def rows_of(steps: Any) -> Counter[int]:
    found: Counter[int] = Counter()
    for step in steps:
        found.update(step.batch["row"].to_pylist())
    return found


def check(found: Counter[int]) -> None:
    assert found == Counter(range(0, ROWS, 4))  # every row whose key is a multiple of four, once


def test_two_datasets_of_a_server_are_joined(line: Proxy) -> None:
    location = f"grpc://127.0.0.1:{line.port}"
    source = dovetail.sources.flight(location, "customers")
    assert (source.schema, source.resumable) == (CUSTOMERS.schema, True)
    check(rows_of(dovetail.progressive(orders(line), source, ON)))
    assert not list(dovetail.progressive(dovetail.sources.flight(location, "none"), source, ON))


def test_results_come_while_the_server_is_slow(line: Proxy) -> None:
    line.slow_down(0.002)
    source = orders(line)
    steps = dovetail.progressive(source, CUSTOMERS, ON, memory="2MB")
    line.stall_after(500_000)
    first = next(steps)
    assert 0 < first.batch.num_rows < PAIRS
    line.go_on()
    check(rows_of([first, *steps]))


@pytest.mark.one_in(2)
def test_a_stalled_server_leaves_time_for_other_work(line: Proxy) -> None:
    """Rows arrive in opposite orders, so partners are not in memory together, and a stall leaves time for disk work."""
    source = dovetail.sources.flight(f"grpc://127.0.0.1:{line.port}", "some")
    line.stall_after(350_000)
    other = pa.table({"row_of": np.arange(SOME)[::-1]})
    steps = dovetail.progressive(source, other, "l.row = r.row_of", memory="100KB", algorithm="nested_loop", wait_ms=10)
    found: Counter[int] = Counter()
    phases = []
    for step in steps:
        phases.append(step.phase)
        found.update(step.batch["row"].to_pylist())
        if step.phase == "reactive" and line.ration_used.is_set():
            line.go_on()
    assert found == Counter(range(SOME))
    assert "reactive" in phases


@pytest.mark.parametrize("after", [20_000, 1_000_000, 2_500_000])
def test_a_broken_connection_is_resumed_at_the_next_row(line: Proxy, after: int) -> None:
    source = orders(line)
    line.cut_after(after)
    check(rows_of(dovetail.progressive(source, CUSTOMERS, ON, retry=SOON)))
    assert line.ration_used.is_set()
    assert line.connections >= 3  # for the schema, before the cut, after it


class OtherServer(flight.FlightServerBase):
    """A third-party server: one ticket for each half of the rows, no offsets."""

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        endpoints = [flight.FlightEndpoint(half, []) for half in (b"0", b"1")]
        return flight.FlightInfo(ORDERS.schema, descriptor, endpoints)

    def do_get(self, context: Any, ticket: Any) -> Any:
        half = ORDERS.slice(int(ticket.ticket) * ROWS // 2, ROWS // 2)
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(half.schema, half.to_batches(700)))


def test_rows_of_any_server_are_skipped_if_it_keeps_their_order() -> None:
    with OtherServer("grpc://127.0.0.1:0") as server:
        line = Proxy(server.port)
        source = orders(line, same_order=True)
        found: Counter[int] = Counter()
        cuts = [2_500_000, 1_000_000]  # the last one is in the first half of the rows, and is made first
        line.cut_after(cuts.pop())
        for step in dovetail.progressive(source, CUSTOMERS, ON, memory="1MB", retry=SOON):
            found.update(step.batch["row"].to_pylist())
            if cuts and line.ration_used.is_set():
                line.cut_after(cuts.pop())
        check(found)
        assert line.connections >= 4
        line.close()


def test_without_a_promise_a_break_is_final_and_what_came_stays_valid() -> None:
    with OtherServer("grpc://127.0.0.1:0") as server:
        line = Proxy(server.port)
        source = dovetail.sources.flight(f"grpc://127.0.0.1:{line.port}", b"SELECT * FROM orders")
        line.stall_after(1_000_000)
        steps = dovetail.progressive(source, CUSTOMERS, ON, retry=SOON)
        found = rows_of([next(steps)])
        line.cut()
        rest: list[Any] = []
        with pytest.raises(
            SourceError, match=r"the left source \(grpc://.*\) failed after [\d,]+ rows: .*It cannot be"
        ):
            rest.extend(steps)
        found += rows_of(rest)
        assert found <= Counter(range(0, ROWS, 4))
        line.close()


def test_a_server_that_stays_away_is_given_up(line: Proxy) -> None:
    source = orders(line)
    line.cut_after(1_000_000)
    steps = dovetail.progressive(source, CUSTOMERS, ON, retry=Retry(tries=3, first_pause_ms=1))
    line.target = 1  # where no server is listening

    with pytest.raises(SourceError, match=r"left source .* failed after 0 rows: .*no batch after 3 tries"):
        list(steps)


def test_leaving_stops_a_read_under_way(line: Proxy) -> None:
    source = orders(line)
    line.stall_after(1_000_000)
    steps = dovetail.progressive(source, CUSTOMERS, ON)
    next(steps)
    assert line.ration_used.wait(PATIENCE_S)
    steps.close()  # type: ignore[attr-defined]
    wait_for_threads_to_end()


def test_a_range_of_rows_can_be_had_again(server: TableServer) -> None:
    source = dovetail.sources.flight(f"grpc://127.0.0.1:{server.port}", "orders")
    for first, last in [(0, 1), (499, 501), (1000, 2500), (ROWS - 1, ROWS)]:
        pieces = list(Reader(source, SOON).pieces(first, last))
        assert [n for piece in pieces for n in piece.batch["row"].to_pylist()] == list(range(first, last))
        assert pieces[-1].position == last


class Hasty(TableServer):
    """Ends its first few streams too early."""

    answers = 3

    def do_get(self, context: Any, ticket: Any) -> Any:
        wanted = json.loads(ticket.ticket)
        if self.answers:
            self.answers -= 1
            wanted["rows"] = 700
        return super().do_get(context, flight.Ticket(json.dumps(wanted).encode()))


def test_rows_that_are_still_to_come_are_waited_for() -> None:
    paced = Paced(ORDERS, np.concatenate([np.zeros(1000), steady(ROWS - 1000, 1e-5)]))
    with Hasty({"orders": paced}, batch_rows=500) as server:
        source = dovetail.sources.flight(f"grpc://127.0.0.1:{server.port}", "orders")
        assert (source.rows, source.available(), source.resumable) == (-1, 1000, True)  # type: ignore[attr-defined]
        paced.begin()
        check(rows_of(dovetail.progressive(source, CUSTOMERS, ON, retry=SOON)))
        assert not server.answers
        assert source.available() == ROWS  # type: ignore[attr-defined]


def test_data_that_changed_meanwhile_is_not_mixed(line: Proxy) -> None:
    with TableServer({"orders": ORDERS.slice(10)}) as other:
        source = orders(line)
        line.target = other.port
        with pytest.raises(SourceError, match=r"its rows have changed: 29,990 of them instead of 30,000"):
            list(dovetail.progressive(source, CUSTOMERS, ON, retry=SOON))


class Announcing(flight.FlightServerBase):
    """A third-party server that announces its number of rows; `streams` are the ranges that it sends, in turn."""

    def __init__(self, streams: list[list[tuple[int, int]]], endpoints: int = 1) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.streams = streams
        self.endpoints = endpoints

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        endpoints = [flight.FlightEndpoint(str(number).encode(), []) for number in range(self.endpoints)]
        return flight.FlightInfo(ORDERS.schema, descriptor, endpoints, total_records=ROWS)

    def do_get(self, context: Any, ticket: Any) -> Any:
        ranges = self.streams.pop(0) if len(self.streams) > 1 else self.streams[0]
        batches = [batch for low, high in ranges for batch in ORDERS.slice(low, high - low).to_batches(700)]
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(ORDERS.schema, batches))

    def source(self, **options: Any) -> Any:
        return dovetail.sources.flight(f"grpc://127.0.0.1:{self.port}", "orders", **options)


ALL_ROWS = [(0, ROWS)]
EARLY, HOLE, TWICE = [(0, 20_000)], [(0, 10_000), (11_000, ROWS)], [(0, 11_000), (10_000, ROWS)]


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        (EARLY, r"failed after 20,000 rows: .*ended at row 20,000, before the last of 30,000 rows"),
        (HOLE, r"ended at row 29,000, before the last of 30,000 rows.*It cannot be resumed"),
        (TWICE, r"it sends more rows than the 30,000 that it has announced.*A retry cannot fix this"),
        ([], r"ended at row 0, before the last of 30,000 rows"),
    ],
)
def test_a_stream_has_the_rows_that_were_announced(ranges: list[tuple[int, int]], told: str) -> None:
    with Announcing([ranges]) as server, pytest.raises(SourceError, match=told):
        list(dovetail.progressive(server.source(), CUSTOMERS, ON, retry=SOON))


def test_a_stream_that_ends_early_is_a_break() -> None:
    """It may happen again, before the rows already received; but not forever at the same row."""
    with Announcing([EARLY, [(0, 8_000)], [(0, 25_000)], ALL_ROWS]) as server:
        check(rows_of(dovetail.progressive(server.source(same_order=True), CUSTOMERS, ON, retry=SOON)))
        server.streams = [EARLY]
        with pytest.raises(SourceError, match=r"after 20,000 rows: .* before the last of 30,000 rows.*after 8 tries"):
            list(dovetail.progressive(server.source(same_order=True), CUSTOMERS, ON, retry=SOON))


def test_rows_that_came_must_come_again_if_nothing_is_announced() -> None:
    class Silent(Announcing):
        def get_flight_info(self, context: Any, descriptor: Any) -> Any:
            return flight.FlightInfo(ORDERS.schema, descriptor, [flight.FlightEndpoint(b"0", [])])

    with Silent([[(0, 8_000)]]) as server, pytest.raises(SourceError, match=r"ended at row 8,000, before row 9,000"):
        list(Reader(server.source(same_order=True), Retry(tries=1)).pieces(9_000))


def test_an_endpoint_has_no_more_rows_than_all() -> None:
    """The number of rows of an endpoint is not announced, unless it is the only one."""
    with Announcing([[(0, 10)]], endpoints=2) as server:
        halves = [FlightEndpoint(server.source(), number, 2) for number in range(2)]
        assert [sum(piece.batch.num_rows for piece in Reader(half).pieces()) for half in halves] == [10, 10]
        server.streams = [TWICE]
        with pytest.raises(SourceError, match="it sends more rows"):
            list(Reader(halves[1]).pieces())
        server.endpoints, server.streams = 1, [EARLY]
        with pytest.raises(SourceError, match="before the last of 30,000 rows"):
            list(Reader(FlightEndpoint(server.source(), 0, 1)).pieces())


class Generous(TableServer):
    """Sends some rows twice."""

    def do_get(self, context: Any, ticket: Any) -> Any:
        wanted = json.loads(ticket.ticket)
        first, rows = wanted["offset"], wanted.get("rows", ROWS - wanted["offset"])
        batches = [*ORDERS.slice(first, rows).to_batches(500), *ORDERS.slice(first, 10).to_batches()]
        return flight.RecordBatchStream(pa.RecordBatchReader.from_batches(ORDERS.schema, batches))


@pytest.mark.parametrize("bounds", [(), (29_000,), (1_000, 2_000), (0, ROWS)])
def test_rows_behind_the_last_one_are_not_cut_off(bounds: tuple[int, ...]) -> None:
    with Generous({"orders": ORDERS}) as server:
        source = dovetail.sources.flight(f"grpc://127.0.0.1:{server.port}", "orders")
        with pytest.raises(SourceError, match="it sends more rows"):
            list(Reader(source, SOON).pieces(*bounds))


def test_what_will_not_work_is_said_at_once(server: TableServer) -> None:
    location = f"grpc://127.0.0.1:{server.port}"
    with pytest.raises(
        SourceError, match=r"cannot read .*: no table is called 'order'; there are customers, none, orders, some\.$"
    ):
        dovetail.sources.flight(location, "order")
    with pytest.raises(SourceError, match=r"cannot read grpc://127\.0\.0\.1:1, 'orders'"):
        dovetail.sources.flight("grpc://127.0.0.1:1", "orders")
    with pytest.raises(SourceError, match=r"cannot read grpc://…@127\.0\.0\.1:1, 'orders'"):
        dovetail.sources.flight("grpc://reader:secret@127.0.0.1:1", "orders")  # the message omits the password
    client = flight.connect(location)
    with pytest.raises(pa.ArrowInvalid, match="has 250 rows; 251 is out of range"):
        client.do_get(flight.Ticket(b'{"name": "customers", "offset": 251}'))
    assert sorted(info.total_records for info in client.list_flights()) == [0, 250, SOME, ROWS]
    client.close()
    with pytest.raises(InputError, match="give a query or a table"):
        dovetail.sources.postgres("", "SELECT 1", table="t")


def test_a_server_that_is_killed_and_comes_back_gives_every_row_once(processes: list[Process]) -> None:
    line = Proxy(processes[0].port())
    source = orders(line)
    line.stall_after(1_000_000)
    steps = dovetail.progressive(source, CUSTOMERS, ON, retry=PATIENT)
    found = rows_of([next(steps)])
    assert line.ration_used.wait(PATIENCE_S)
    processes[0].kill()
    line.go_on()
    line.target = processes[1].port()
    found += rows_of(steps)
    check(found)
    line.close()
