"""State on disk as users and tools read it: every row of every operator, once."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from tests.test_state_upgrade import CASES, ROWS, STEP, made, position, tables

from dovetail.errors import InputError, StateError
from dovetail.operators.protocol import JoinOperator
from dovetail.spark.streaming.reports import Report, Reports
from dovetail.storage.segments import SegmentStore
from dovetail.storage.stored_state import (
    StoredJoin,
    StoredRows,
    count_bytes,
    last_commit,
    removable_query,
    stored_joins,
    write_copy,
)

QUERY = "5a2b7c1e-0000-4000-8000-123456789abc"
ALIASES = {2: "lr", 3: "abc"}


def layout(inputs: int) -> dict[str, object]:
    columns = [["k", "int64"], ["s", "string"], ["row", "int64"]]
    return {
        "format": 4,
        "algorithm": "shj",
        "condition": "l.k = r.k",
        "columns": [columns] * 2 if inputs == 2 else [[alias, columns] for alias in ALIASES[inputs]],
    }


def join_directory(state_dir: Path, inputs: int = 2) -> Path:
    directory = state_dir / QUERY / "dovetail"
    directory.mkdir(parents=True)
    (directory / "layout.json").write_text(json.dumps(layout(inputs)))
    return directory


def snapshot(operator: JoinOperator, batch: int, directory: Path, before: str | None = None) -> str:
    manifest = operator.snapshot()
    document = {
        "version": manifest.version,
        "batch": batch,
        "state": manifest.state,
        "segments": manifest.segments,
        "previous": [],
        "notes": None,
    }
    write_copy(directory, 3, json.dumps(document), before)
    return json.dumps(document)


def stored(state_dir: Path) -> StoredJoin:
    (join,) = stored_joins(state_dir, QUERY)
    return join


def rows_of(stored: list[StoredRows]) -> Counter[int]:
    numbers = [number for rows in stored for number in rows.numbers.tolist()]
    assert len(set(numbers)) == len(numbers)
    return Counter(row for rows in stored for row in rows.batch.column("row").to_pylist())


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("name", "inputs"), CASES)
def test_every_row_of_every_operator_is_read_once(name: str, inputs: int, tmp_path: Path) -> None:
    """In memory or spilled, in old or in new segments; rows without a key may have been dropped."""
    directory = join_directory(tmp_path, inputs)
    operator = made(name, inputs, SegmentStore(directory / "cell-3", 1))
    aliases = ALIASES[inputs]
    for batch, start in enumerate(range(0, ROWS, STEP)):
        for number, table in enumerate(tables(inputs)):
            for _ in operator.arrive(position(number, inputs), table.slice(start, STEP)):
                pass
        snapshot(operator, batch, directory)
        (cell,) = stored(tmp_path).cells()
        total = 0
        for number, alias in enumerate(aliases):
            found = rows_of(stored(tmp_path).read(3, alias))
            came = tables(inputs)[number].slice(0, start + STEP)
            keyed = Counter(came.filter(came.column("k").is_valid()).column("row").to_pylist())
            assert keyed <= found <= Counter(came.column("row").to_pylist())
            total += found.total()
        assert cell.rows == total
        assert (cell.number, cell.batch, cell.segments) == (3, batch, len(cell.manifest["segments"]))
        files = [directory / "cell-3" / str(name) for name in cell.manifest["segments"]]
        assert cell.nbytes == sum(path.stat().st_size for path in files) == count_bytes(cell.manifest["state"])


def two_batches(state_dir: Path) -> Path:
    """A cell after two micro-batches of ten rows."""
    directory = join_directory(state_dir)
    operator, before = made("shj", 2, SegmentStore(directory / "cell-3", 1)), None
    for batch in range(2):
        list(operator.arrive(position(0, 2), tables(2)[0].slice(1 + batch * STEP, STEP)))
        before = snapshot(operator, batch, directory, before)
    return directory


def test_a_manifest_that_is_not_committed_is_left_out(tmp_path: Path) -> None:
    two_batches(tmp_path)
    join = stored(tmp_path)
    assert [cell.rows for cell in join.cells()] == [2 * STEP]
    assert [cell.rows for cell in join.cells(committed=1)] == [2 * STEP]
    assert [cell.rows for cell in join.cells(committed=0)] == [STEP]
    assert join.cells(committed=-1) == []
    assert rows_of(join.read(3, "l", committed=0)) == Counter(range(1, 1 + STEP))
    assert join.read(3, "r") == join.read(4, "l") == []


def test_cells_without_a_manifest_are_not_taken_for_empty(tmp_path: Path) -> None:
    directory = two_batches(tmp_path)
    stored(tmp_path).check_copies()
    (directory / "cell-5").mkdir()
    stored(tmp_path).check_copies()
    (directory / "manifest-3.json").unlink()
    with pytest.raises(StateError, match="has no manifest of cell-3: written by an earlier release"):
        stored(tmp_path).check_copies()


def test_the_last_commit_of_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not the checkpoint of a query"):
        last_commit(tmp_path)
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    assert last_commit(tmp_path) == (QUERY, -1)
    (tmp_path / "commits").mkdir()
    for name in ("9", "10", ".10.crc"):
        (tmp_path / "commits" / name).touch()
    assert last_commit(tmp_path) == (QUERY, 10)


def test_what_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    directory = two_batches(tmp_path)
    join = stored(tmp_path)
    with pytest.raises(InputError, match="has no input 'x': there are l, r"):
        join.read(3, "x")
    segment = next((directory / "cell-3").glob("*.arrow"))
    segment.unlink()
    with pytest.raises(StateError, match=f"{segment.name} is missing"):
        join.read(3, "l")
    (directory / "manifest-3.json").write_text("[")
    with pytest.raises(StateError, match=r"manifest-3\.json is damaged"):
        join.cells()
    (directory / "layout.json").write_text("{}")
    with pytest.raises(StateError, match="is not the layout of a join"):
        stored_joins(tmp_path)
    with pytest.raises(InputError, match=f"no state of a query 'no'. There are: {QUERY}"):
        stored_joins(tmp_path, "no")
    with pytest.raises(InputError, match="is not a directory"):
        stored_joins(tmp_path / "no")


def test_all_state_of_a_query_is_removed_and_nothing_else(tmp_path: Path) -> None:
    directory = two_batches(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    Reports(directory / "reports", 1).write(3, Report(17))
    found = removable_query(tmp_path, QUERY)
    assert found.nbytes == sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    assert found.written == max(path.stat().st_mtime for path in (tmp_path / QUERY).rglob("*") if path.is_file())
    found.remove()
    assert list(tmp_path.iterdir()) == [other]


@pytest.mark.parametrize("where", ["", "dovetail", "dovetail/cell-3"])
@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_a_directory_with_anything_else_is_not_removed(where: str, kind: str, tmp_path: Path) -> None:
    two_batches(tmp_path)
    strange = tmp_path / QUERY / where / "thesis"
    if kind == "file":
        strange.touch()
    elif kind == "directory":
        strange.mkdir()
        (strange / "chapter").touch()
    else:
        os.symlink(tmp_path, strange)
    with pytest.raises(InputError, match=r"which no join of streams has written\. Nothing was removed"):
        removable_query(tmp_path, QUERY)
    assert strange.exists()


@pytest.mark.parametrize("query", ["..", ".", "/", "other", f"{QUERY}/dovetail"])
def test_what_is_no_query_is_not_removed(query: str, tmp_path: Path) -> None:
    two_batches(tmp_path)
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="has no state of a query"):
        removable_query(tmp_path, query)
    assert (tmp_path / QUERY).is_dir()
