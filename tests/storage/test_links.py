"""Links and FIFOs in a state directory: their targets are not written, not removed and not waited for."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from dovetail.errors import StateError
from dovetail.spark.streaming.reports import Report, Reports
from dovetail.storage.blocks import BlockStore
from dovetail.storage.local_store import LocalStore
from dovetail.storage.open_store import open_store
from dovetail.storage.segments import SegmentStore
from dovetail.storage.stored_state import stored_joins

ROWS = pa.record_batch({"k": [1, 2, 3]})
SEGMENT = "00000001-l-0123456789ab.arrow"
FOREIGN = (
    "00000001-notes.txt",
    "00000001-l-0123456789ab.arrow~",
    "1-l-0123456789ab.arrow",
    "00000001-l-0123456789.arrow",
    "2024-thesis.arrow",
)


@pytest.fixture(autouse=True)
def _no_hangs() -> Iterator[None]:
    signal.alarm(60)
    yield
    signal.alarm(0)


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A foreign directory, with files that look like segments."""
    place = tmp_path / "precious"
    place.mkdir()
    for name in (SEGMENT, "00000001-thesis", "layout.json"):
        (place / name).write_text("as it was")
    return place


def unharmed(place: Path) -> bool:
    names = {SEGMENT, "00000001-thesis", "layout.json"}
    return {path.name for path in place.iterdir()} == names and all(
        path.read_text() == "as it was" for path in place.iterdir()
    )


def test_a_link_in_the_place_of_a_report(tmp_path: Path, precious: Path) -> None:
    reports = tmp_path / "state" / "reports"
    reports.mkdir(parents=True)
    name = "3.1.17.-.0"
    (reports / name).symlink_to(precious / "layout.json")
    Reports(open_store(tmp_path / "state") / "reports", 1).write(3, Report(17))
    assert unharmed(precious)
    assert not (reports / name).is_symlink()
    assert (reports / name).stat().st_size == 0
    Reports(open_store(tmp_path / "state") / "reports", 1).write(3, Report(17))  # another attempt
    (reports / "draft-of-something").touch()
    assert Reports(open_store(tmp_path / "state") / "reports", 2).totals().emitted == 17


@pytest.mark.parametrize("which", ["query", "query/join", "query/join/cell-0"])
def test_a_link_in_the_place_of_a_directory(which: str, tmp_path: Path, precious: Path) -> None:
    link = tmp_path / "state" / which
    link.parent.mkdir(parents=True)
    behind = Path("query/join/cell-0").relative_to(which)
    if behind.parts:
        (precious / behind).mkdir(parents=True)
        (precious / behind / SEGMENT).write_text("as it was")
    link.symlink_to(precious)
    cell = open_store(tmp_path / "state") / "query" / "join" / "cell-0"
    store = pickle.loads(pickle.dumps(cell))
    segments = SegmentStore(store, 5)
    for action in (
        lambda: segments.sweep(4, []),
        lambda: segments.write(ROWS, "l"),
        lambda: store.put("layout.json", b"other"),
        lambda: store.put("empty", b""),
        lambda: store.delete([SEGMENT]),
        lambda: list(store.entries()),
    ):
        with pytest.raises(StateError, match=f"{which} is a link or not a directory"):
            action()
    with suppress(StateError):
        store.delete_all()
    assert (precious / behind / SEGMENT).read_text() == "as it was"
    assert (precious / "layout.json").read_text() == "as it was"
    assert not (precious / behind / "empty").exists()


def test_the_directory_that_was_given_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    store = SegmentStore(open_store(tmp_path / "state") / "query" / "join" / "cell-0", 1)
    block = store.write(ROWS, "l")
    assert (tmp_path / "disk" / "query" / "join" / "cell-0" / block.name).exists()
    assert store.sweep(2, []) == 1


def test_only_segments_are_swept(tmp_path: Path) -> None:
    cell = tmp_path / "cell-0"
    cell.mkdir()
    for name in (*FOREIGN, SEGMENT, "00000001-l-matched-0123456789ab.tmp", "00000004-r-0123456789ab.arrow"):
        (cell / name).touch()
    assert SegmentStore(cell, 5).sweep(4, []) == 2
    assert {path.name for path in cell.iterdir()} == {*FOREIGN, "00000004-r-0123456789ab.arrow"}


def test_a_link_to_a_file_is_swept_and_not_its_target(tmp_path: Path, precious: Path) -> None:
    (tmp_path / "cell-0").mkdir()
    (tmp_path / "cell-0" / SEGMENT).symlink_to(precious / SEGMENT)
    assert SegmentStore(open_store(tmp_path) / "cell-0", 5).sweep(4, []) == 1
    assert unharmed(precious)


def test_a_segment_is_a_new_file(tmp_path: Path, precious: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In case an attacker guesses a name."""
    monkeypatch.setattr("dovetail.storage.blocks.uuid.uuid4", lambda: type("U", (), {"hex": "0" * 32})())
    (tmp_path / "l-000000000000.tmp").symlink_to(precious / "layout.json")
    with pytest.raises(StateError, match=r"cannot write join state to .*: File exists"):
        BlockStore(tmp_path).write(ROWS, "l")
    assert unharmed(precious)


@pytest.mark.parametrize("mapped", [True, False])
def test_a_fifo_in_the_place_of_a_segment(mapped: bool, tmp_path: Path) -> None:
    store = BlockStore(tmp_path)
    block = store.write(ROWS, "l")
    (tmp_path / block.name).unlink()
    os.mkfifo(tmp_path / block.name)
    with pytest.raises(StateError, match="is damaged: it is no regular file"):
        store.read(block) if mapped else store.pages(block)


def test_a_fifo_in_the_place_of_a_layout(tmp_path: Path) -> None:
    join = tmp_path / "query" / "join"
    join.mkdir(parents=True)
    os.mkfifo(join / "layout.json")
    with pytest.raises(StateError, match=r"cannot read .*layout\.json: it is no regular file"):
        stored_joins(tmp_path)


def test_a_file_is_published_into_no_link(tmp_path: Path, precious: Path) -> None:
    (tmp_path / "stage").mkdir()
    (tmp_path / "stage" / "layout.json").touch()
    (tmp_path / "table").symlink_to(precious)
    with pytest.raises(StateError, match="table is a link"):
        (open_store(tmp_path) / "stage").publish("layout.json", LocalStore(tmp_path) / "table")
    assert unharmed(precious)
