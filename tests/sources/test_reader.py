"""Progressive joins over scripted sources that stall, break and come back."""

import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from tests.patience import PATIENCE_S, wait_for_threads_to_end
from tests.seed import seeded
from tests.sources.scripted import Gate, Scripted, ScriptedReading

import dovetail
from dovetail.core.rows import Arrival, Stall
from dovetail.errors import InputError, SourceError
from dovetail.operators.registry import REGISTRY, operator_class
from dovetail.sources import Piece, Retry, reader
from dovetail.sources.protocol import as_input, as_source
from dovetail.sources.reader import Feed
from dovetail.testing import random_table

AT_ONCE = Retry(tries=4, first_pause_ms=0)
ON = "l.k = r.k"


def numbers(rows: int, keys: int = 10, pad: int = 0) -> pa.Table:
    columns: dict[str, Any] = {"k": np.arange(rows) % keys, "row": np.arange(rows)}
    return pa.table(columns | {"pad": ["x" * pad] * rows} if pad else columns)


def pairs(steps: Iterator[Any]) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for step in steps:
        found.update(zip(step.batch["row"].to_pylist(), step.batch["row_right"].to_pylist(), strict=True))
    return found


def expected(left: pa.Table, right: pa.Table) -> Counter[tuple[int, int]]:
    whole = dovetail.join(left, right, ON)
    return Counter(zip(whole["row"].to_pylist(), whole["row_right"].to_pylist(), strict=True))


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("dovetail-")]


class WithSchema:
    """An iterator of record batches that knows its schema."""

    def __init__(self, table: pa.Table) -> None:
        self.schema = table.schema
        self._batches = iter(table.to_batches(max_chunksize=9))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)


@pytest.mark.parametrize("kind", [lambda t: t, lambda t: t.to_reader(11), WithSchema, Scripted])
def test_whatever_gives_batches_can_be_joined(kind: Any) -> None:
    left, right = numbers(100), numbers(70)
    assert pairs(dovetail.progressive(kind(left), Scripted(right), ON)) == expected(left, right)
    assert pairs(dovetail.progressive(right, kind(left), ON)) == expected(right, left)
    wait_for_threads_to_end()


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", REGISTRY)
def test_every_operator_keeps_to_its_budget_with_sources(name: str) -> None:
    left, right = numbers(1200, keys=300, pad=60), numbers(1000, keys=300, pad=60)
    gates = [Gate(600), Gate(1000)]
    steps = dovetail.progressive(
        Scripted(left, gates=gates, batch_rows=200),
        Scripted(right, batch_rows=500),
        ON,
        memory="70KB" if operator_class(name).spec.spills else "4MB",
        algorithm=name,
        wait_ms=1,
    )
    for gate in gates:
        threading.Timer(0.02, gate.opened.set).start()
    assert pairs(steps) == expected(left, right)


def test_while_sources_stall_the_join_goes_on_and_hands_over_when_rows_come() -> None:
    left, right = numbers(4000, keys=4000, pad=30), numbers(4000, keys=4000, pad=30).take(np.arange(4000)[::-1])
    gates = (Gate(3900), Gate(3900))
    steps = dovetail.progressive(
        Scripted(left, gates=[gates[0]], batch_rows=300),
        Scripted(right, gates=[gates[1]], batch_rows=300),
        ON,
        memory="200KB",
        algorithm="nested_loop",
        wait_ms=5,
    )
    phases: list[str] = []
    found: Counter[tuple[int, int]] = Counter()
    for step in steps:
        phases.append(step.phase)
        found.update(zip(step.batch["row"].to_pylist(), step.batch["row_right"].to_pylist(), strict=True))
        if step.phase == "reactive":  # only now may the sources continue
            for gate in gates:
                gate.opened.set()
    assert found == expected(left, right)
    assert phases.index("reactive") < phases.index("cleanup")


def test_an_ended_source_does_not_keep_the_other_from_stalling() -> None:
    left, right = numbers(3000, keys=3000, pad=30), numbers(3000, keys=3000, pad=30).take(np.arange(3000)[::-1])
    gate = Gate(2990)
    steps = dovetail.progressive(
        Scripted(left, batch_rows=300),
        Scripted(right, gates=[gate], batch_rows=300),
        ON,
        memory="150KB",
        algorithm="nested_loop",
        wait_ms=5,
    )
    for step in steps:
        if step.phase == "reactive":
            gate.opened.set()
            break
    assert gate.opened.is_set()
    assert pairs(steps)
    wait_for_threads_to_end()


def test_a_stall_ends_with_the_unit_of_work_in_which_rows_come() -> None:
    gate = Gate(7)
    feed = Feed(
        (Scripted(numbers(14), gates=[gate]), Scripted(numbers(0))), capacity_bytes=1000, batch_rows=10, wait_ms=1
    )
    events = feed.events()
    stall = next(event for event in events if isinstance(event, Stall) and gate.reached.is_set())
    assert stall.over is not None
    assert not stall.over()
    gate.opened.set()
    while not stall.over():
        pass
    assert [type(event).__name__ for event in events][-2:] == ["Arrival", "End"]
    feed.close()


def test_a_gap_between_batches_is_a_short_stall_and_then_a_long_one() -> None:
    gate = Gate(7)
    feed = Feed((Scripted(numbers(14), gates=[gate]), Scripted(numbers(0))), capacity_bytes=1000, batch_rows=10)
    stalls = []
    for event in feed.events():
        if isinstance(event, Stall) and gate.reached.is_set() and not gate.opened.is_set():
            stalls.append(event.is_short)
            if not event.is_short:
                gate.opened.set()
    assert stalls[-1] is False
    assert all(stalls[:-1])
    feed.close()


def test_gaps_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pending work is done between two batches: there are gaps, but no long stall."""
    left, right = numbers(4000, keys=4000, pad=30), numbers(4000, keys=4000, pad=30).take(np.arange(4000)[::-1])
    turn = threading.Semaphore(1)
    take = reader._Line.take

    def take_after_gap(line: reader._Line, wait_s: float) -> object:
        if line._stalls:
            turn.release()
        return take(line, wait_s)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in right.to_batches(max_chunksize=100):
            turn.acquire()
            yield batch

    monkeypatch.setattr(reader, "IDLE_S", PATIENCE_S)
    monkeypatch.setattr(reader._Line, "take", take_after_gap)
    source = pa.RecordBatchReader.from_batches(right.schema, batches())
    found = Counter[str]()
    for step in dovetail.progressive(left, source, ON, memory="200KB", algorithm="pmj"):
        found[step.phase] += step.batch.num_rows
    assert found["reactive"]
    assert found.total() == expected(left, right).total()


def test_a_source_is_not_read_faster_than_it_is_joined() -> None:
    left = Scripted(numbers(100_000, keys=100_000), batch_rows=500)  # 8 KB each
    steps = dovetail.progressive(left, numbers(100_000, keys=100_000), ON, memory="2MB", algorithm="nested_loop")
    next(steps)
    assert left.given < 10_000
    steps.close()  # type: ignore[attr-defined]
    assert left.given < 10_000


def test_leaving_stops_the_threads_and_closes_the_sources() -> None:
    gate = Gate(21)
    left, right = Scripted(numbers(50), gates=[gate]), Scripted(numbers(50), gates=[gate])
    steps = dovetail.progressive(left, right, ON)
    next(steps)
    assert gate.reached.wait(PATIENCE_S)
    steps.close()  # type: ignore[attr-defined]
    wait_for_threads_to_end()
    assert all(reading.closed.is_set() for reading in (*left.readings, *right.readings))


def test_leaving_closes_readers_and_what_they_read() -> None:
    closed = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            while True:
                yield numbers(10).to_batches()[0]
        finally:
            closed.append(True)

    reader = pa.RecordBatchReader.from_batches(numbers(1).schema, batches())
    steps = dovetail.progressive(reader, numbers(10), ON)
    next(steps)
    del steps, reader
    assert closed
    wait_for_threads_to_end()


def test_a_join_that_was_never_begun_reads_nothing() -> None:
    source = Scripted(numbers(50))
    dovetail.progressive(source, source, ON)
    assert not source.opened


def test_a_source_that_cannot_be_interrupted_does_not_keep_the_join_from_being_left() -> None:
    stuck, released = threading.Event(), threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield numbers(10).to_batches()[0]
        stuck.set()
        released.wait()

    reader = pa.RecordBatchReader.from_batches(numbers(1).schema, batches())
    steps = dovetail.progressive(reader, numbers(10), ON)
    next(steps)
    stuck.wait()
    steps.close()  # type: ignore[attr-defined]
    (thread,) = threads()
    released.set()
    thread.join(PATIENCE_S)
    wait_for_threads_to_end()


def test_a_forgotten_join_can_be_closed_by_a_thread_of_its_own() -> None:
    """The garbage collector may run in any thread."""
    steps: list[Any] = []

    class Closing(Scripted):
        def open(self, position: int | None = None) -> ScriptedReading:
            steps.pop().close()
            return super().open(position)

    feed = Feed((Closing(numbers(5)), Scripted(numbers(0))), capacity_bytes=1000, batch_rows=10)
    steps.append(feed)
    assert next(feed.events()) is not None
    feed.close()
    wait_for_threads_to_end()


def test_a_source_that_breaks_goes_on_where_it_was(caplog: pytest.LogCaptureFixture) -> None:
    left, right = numbers(100), numbers(60)
    source = Scripted(left, breaks=[0, 7, 50, 50, 50, 100])
    assert pairs(dovetail.progressive(source, right, ON, retry=AT_ONCE)) == expected(left, right)
    assert source.opened == [0, 0, 7, 50, 50, 50, 100]
    assert "the left source (scripted) failed after 7 rows, retrying in 0.0 s: the line is dead" in caplog.messages


@pytest.mark.parametrize("seed", range(12))
def test_no_row_is_lost_or_doubled_by_any_breaks(seed: int) -> None:
    rng = seeded(seed)
    tables = [numbers(rng.choice([0, 1, 40, 200]), keys=rng.choice([1, 5, 50])) for _ in range(2)]
    sources = [
        Scripted(
            table,
            batch_rows=rng.choice([1, 3, 64]),
            breaks=[rng.randint(0, table.num_rows) for _ in range(rng.randint(0, 6))],
        )
        for table in tables
    ]
    retry = Retry(tries=8, first_pause_ms=0)
    found = pairs(dovetail.progressive(*sources, ON, retry=retry, memory="64KiB", algorithm="nested_loop", wait_ms=0))
    assert found == expected(*tables)


def test_a_source_that_stays_broken_is_given_up_and_named() -> None:
    gate = Gate(21)
    source = Scripted(numbers(50), breaks=[21] * 10, gates=[gate])
    steps = dovetail.progressive(numbers(30), source, ON, retry=AT_ONCE)
    whole = expected(numbers(30), numbers(21))
    found = [next(steps)]
    while found[-1].results < sum(whole.values()):
        found.append(next(steps))
    gate.opened.set()
    with pytest.raises(
        SourceError,
        match=r"the right source \(scripted\) failed after 21 rows: the line is dead\. It could not be resumed: "
        r"no batch after 4 tries\. The results so far are valid",
    ) as caught:
        next(steps)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert source.opened == [0, 21, 21, 21]
    assert pairs(iter(found)) == whole
    wait_for_threads_to_end()


class Pages:
    """A source as shown in docs/sources.md: a generator, with pages as positions."""

    name = "pages"
    resumable = True
    schema = numbers(0).schema

    def __init__(self, rows: int, broken_pages: list[int]) -> None:
        self._pages = numbers(rows).to_batches(max_chunksize=10)
        self._broken = broken_pages

    def open(self, position: int | None = None) -> Iterator[Piece]:
        for page in range(position or 0, len(self._pages)):
            if page in self._broken:
                self._broken.remove(page)
                raise ConnectionResetError
            yield Piece(self._pages[page], page + 1)


def test_a_source_can_be_a_generator() -> None:
    steps = dovetail.progressive(Pages(100, [0, 3, 9]), numbers(50), ON, retry=AT_ONCE)
    assert pairs(steps) == expected(numbers(100), numbers(50))


def test_pauses_grow_up_to_a_limit() -> None:
    retry = Retry(first_pause_ms=100, longest_pause_ms=1500)
    assert [retry.pause_s(n) for n in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.5, 1.5]


def test_leaving_does_not_wait_for_a_pause() -> None:
    source = Scripted(numbers(50), breaks=[7])
    steps = dovetail.progressive(source, numbers(10), ON, retry=Retry(first_pause_ms=1e6, longest_pause_ms=1e6))
    next(steps)
    while source.breaks:
        pass
    steps.close()  # type: ignore[attr-defined]
    wait_for_threads_to_end()


def test_a_source_without_a_way_back_is_not_tried_again() -> None:
    source = Scripted(numbers(50), breaks=[21], resumable=False)
    with pytest.raises(SourceError, match=r"the left source .* failed after 21 rows: .* It cannot be resumed"):
        list(dovetail.progressive(source, numbers(30), ON))
    assert source.opened == [0]

    def batches() -> Iterator[pa.RecordBatch]:
        yield numbers(10).to_batches()[0]
        raise OSError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(numbers(1).schema, batches())
    with pytest.raises(
        SourceError, match=r"left source \(record batch reader\) failed after 10 rows: .*the disk is gone"
    ):
        list(dovetail.progressive(reader, numbers(30), ON))


def test_an_error_that_trying_again_would_not_cure_is_final() -> None:
    source = Scripted(numbers(50), breaks=[7], error=InputError("there is no such table"))
    with pytest.raises(SourceError, match=r"there is no such table\. A retry cannot fix this"):
        list(dovetail.progressive(source, numbers(30), ON))
    assert source.opened == [0]


def test_rows_that_are_not_what_was_announced_are_refused() -> None:
    source = Scripted(numbers(50))
    source.schema = pa.schema([("k", pa.int64()), ("row", pa.string())])
    with pytest.raises(
        SourceError, match=r"do not have the announced columns: k int64, row int64 instead of k int64, row string"
    ):
        list(dovetail.progressive(source, numbers(30), ON))


def test_inputs_that_cannot_be_joined_are_refused_at_once() -> None:
    with pytest.raises(InputError, match="an iterator of record batches needs a schema"):
        dovetail.progressive(iter(numbers(3).to_batches()), numbers(3), ON)
    reader = numbers(3).to_reader()
    with pytest.raises(InputError, match="both sides are the same reader"):
        dovetail.progressive(reader, reader, ON)
    with pytest.raises(InputError, match="wait_ms must be a number, 0 or more"):
        dovetail.progressive(numbers(3), numbers(3), ON, wait_ms=-1)


def test_string_views_of_a_reader_become_strings() -> None:
    frame = pl.DataFrame({"s": ["a", "b", None], "k": [1, 2, 3]})
    reader = pa.RecordBatchReader.from_stream(frame)
    right = pa.table({"s": ["b", "c"]})
    (step,) = dovetail.progressive(reader, right, "l.s = r.s")
    assert step.batch.to_pydict() == {"s": ["b"], "k": [2], "s_right": ["b"]}


def test_all_kinds_of_columns_come_through() -> None:
    rng = seeded(5)
    left, right = random_table(rng, 40), random_table(rng, 30)
    steps = dovetail.progressive(Scripted(left), Scripted(right, breaks=[14]), "l.s = r.s", retry=AT_ONCE)
    found = pa.Table.from_batches([step.batch for step in steps])
    whole = dovetail.join(left, right, "l.s = r.s")
    assert Counter(map(str, found.to_pylist())) == Counter(map(str, whole.to_pylist()))


def test_a_large_batch_is_let_go_before_the_next_is_made() -> None:
    """It is split into copies, because a single slice would keep all of it in memory."""
    made: list[weakref.ref[np.ndarray]] = []
    alive: list[int] = []
    schema = pa.schema({"k": pa.int64()})

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(4):
            alive.append(sum(one() is not None for one in made))
            values = np.arange(number * 100_000, (number + 1) * 100_000)
            made.append(weakref.ref(values))
            batch = pa.RecordBatch.from_arrays([pa.array(values)], schema=schema)
            del values
            yield batch
            del batch

    sources = [as_source(as_input(pa.RecordBatchReader.from_batches(schema, rows))) for rows in (batches(), iter(()))]
    feed = Feed(sources, capacity_bytes=10_000, batch_rows=4096)
    waiting = [event.batch for event in feed.events() if isinstance(event, Arrival)]
    feed.close()
    assert alive == [0] * 4
    assert max(batch.get_total_buffer_size() for batch in waiting) <= 10_000
    assert pa.Table.from_batches(waiting)["k"].to_pylist() == list(range(400_000))


def test_batches_that_are_not_large_are_not_copied() -> None:
    table = pa.table({"k": np.arange(1000)})
    sources = [as_source(table), as_source(table.slice(0, 0))]
    feed = Feed(sources, capacity_bytes=10_000, batch_rows=4096)
    arrived = [event.batch for event in feed.events() if isinstance(event, Arrival)]
    feed.close()
    assert [batch.column(0).buffers()[1].address for batch in arrived] == [table["k"].chunk(0).buffers()[1].address]
