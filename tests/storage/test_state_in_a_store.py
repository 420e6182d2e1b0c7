"""The state of a cell in an object store, through crashes and failing requests. The test takes the role of Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.seed import seeded
from tests.spark.streaming.test_state import (  # noqa: F401
    CELL,
    CrashError,
    Handle,
    Results,
    Source,
    attempt,
    packed,
    stream_join,
    task,
)
from tests.storage.s3_server import SECRET_KEY, Faults, S3Server, s3_server

from dovetail.errors import InputError, StateError
from dovetail.spark.streaming import reports, state_dir
from dovetail.spark.streaming.cell_processor import CellProcessor
from dovetail.spark.streaming.reports import MOST_OLD, Report, Reports, Totals
from dovetail.spark.streaming.stream_join import StreamJoin
from dovetail.storage import object_store, segments
from dovetail.storage.local_cache import LocalCache
from dovetail.storage.open_store import open_store
from dovetail.storage.segments import SWEEPS
from dovetail.storage.stored_state import removable_query, stored_joins

FAULTY = {"error": 0.08, "drop": 0.04, "lose": 0.08}


@pytest.fixture(scope="module")
def shared_server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def server(shared_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    shared_server.objects.clear()
    shared_server.faults = Faults()
    monkeypatch.setattr(object_store, "FIRST_PAUSE_S", 0.001)
    another_worker(tmp_path, monkeypatch)
    return shared_server


def another_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_bytes: int = 1 << 26) -> LocalCache:
    """Simulate another worker: clear everything cached in this process."""
    cache = LocalCache(tmp_path / f"cache-{random.random()}", limit_bytes)
    monkeypatch.setattr(object_store, "worker_cache", lambda: cache)
    for known in (
        segments._mapped,
        segments._made,
        segments._verified,
        state_dir._known_layouts,
        reports._last_listing,
    ):
        known.clear()
    return cache


def store_join(server: S3Server, **options: object) -> StreamJoin:
    return stream_join(open_store(server.uri("state")), **options)  # type: ignore[arg-type]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("limit_bytes", [1 << 26, 1 << 14])
def test_every_result_once_whatever_fails(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_bytes: int
) -> None:
    """Attempts crash anywhere, requests fail, cells move to workers with an empty or a small cache."""
    server.faults = Faults(7, **FAULTY)
    rng, join, source = seeded(limit_bytes), store_join(server), Source(3)
    stored: str | None = None
    found: Results = Counter()
    for number in range(40):
        rows = source.next()
        if not any(batch.num_rows for batch in rows):
            continue
        if number % 5 == 0:
            another_worker(tmp_path, monkeypatch, limit_bytes)
        done = []
        while not done or rng.random() < 0.2:
            try:
                done.append(attempt(join, stored, rows, rng.choice([None, None, 0, 1, 2, 3, 4])))
            except CrashError:
                continue
        stored = rng.choice(done)[0]
        found += rng.choice(done)[1]
    assert found == source.joined()
    assert server.failed > 10
    # Leftovers of attempts are swept: two sides, two generations, runs of three sizes, eight of each.
    assert len(server.names("state/query/join/cell-")) <= 2 * 2 * 3 * 8 + 4 * 2 * SWEEPS


def test_nothing_is_committed_that_is_not_stored(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are uploaded in the background; a manifest that names them waits for them."""
    join, source = store_join(server), Source(0)
    stored, found = attempt(join, None, source.next())
    rows = source.next()
    server.faults = Faults(error=1, at_most=None)
    monkeypatch.setattr(object_store, "ATTEMPTS", 2)
    handle = Handle(stored)
    processor = CellProcessor(join)
    processor.start(handle, handle)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="cannot write s3://…@bucket/state/query/join/cell-0/"):
        list(processor.handleInputRows((CELL,), iter(packed(join, rows)), None))  # type: ignore[arg-type]
    assert handle.stored == stored
    server.faults = Faults()
    assert found + attempt(join, stored, rows)[1] == source.joined()


def test_requests_of_a_micro_batch(server: S3Server) -> None:
    """A PUT for each segment and for the copy of the manifest, an occasional listing; nothing is read back."""
    join, source = store_join(server), Source(0)
    stored, _ = attempt(join, None, source.next())
    server.requests.clear()
    for _ in range(4):
        stored, _ = attempt(join, stored, source.next())
    assert server.requests["GET"] == server.requests["HEAD"] == 0
    assert server.requests["PUT"] <= 4 * 3
    assert server.requests["LIST"] <= 1


def test_what_is_stored_can_be_looked_at_and_removed(server: S3Server) -> None:
    join, source = store_join(server), Source(0)
    stored = None
    for _ in range(3):
        stored, _ = attempt(join, stored, source.next())
    place = server.uri("state")
    open_store(place).put("note.txt", b"of somebody else")
    (found,) = stored_joins(place, "query")
    assert (found.query, found.name, found.numbers()) == ("query", "join", [0])
    found.check_copies()
    (cell,) = found.cells()
    kept = sum(rows.batch.num_rows for alias in ("l", "r") for rows in found.read(0, alias))
    assert kept == cell.rows
    with pytest.raises(InputError, match="has no state of a query 'other'"):
        removable_query(place, "other")
    query = removable_query(place, "query")
    assert SECRET_KEY not in f"{query} {found} {cell}"
    query.remove()
    assert server.names() == ["state/note.txt"]
    assert stored_joins(place) == []


def test_reports_of_cells(server: S3Server) -> None:
    place = open_store(server.uri("reports"))
    for batch in range(20):
        server.requests.clear()
        for cell in range(3):
            Reports(place, batch).write(cell, Report(batch + cell))
        assert server.requests["LIST"] == 1
    assert Reports(place, 20).totals() == Totals(19 + 20 + 21, None)
    assert len(server.names("reports/")) <= 3 * (MOST_OLD + 2)


@pytest.mark.parametrize(("harm", "message"), [("lose", "is missing"), ("cut", "is damaged"), ("spoil", "is damaged")])
def test_harmed_segments(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str, message: str
) -> None:
    join = store_join(server)
    stored, _ = attempt(join, None, Source(0).next())
    another_worker(tmp_path, monkeypatch)
    for name in server.names("state/query/join/cell-"):
        data = bytearray(server.objects.pop(name).data)
        data[len(data) // 2] ^= 1
        if harm != "lose":
            open_store(server.uri("")).put(name, bytes(data[:-8] if harm == "cut" else data))
    with pytest.raises(StateError, match=rf"s3://…@bucket/state/query/join/cell-0/.*\.arrow.* {message}"):
        attempt(join, stored, Source(1).next())


def test_another_join_than_before(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, _ = attempt(store_join(server), None, Source(0).next())
    another_worker(tmp_path, monkeypatch)
    with pytest.raises(StateError, match="was made by another join: condition was"):
        attempt(store_join(server, on="l.k = r.b"), stored, Source(1).next())
