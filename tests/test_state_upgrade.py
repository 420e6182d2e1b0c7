"""This release restores state written by earlier releases: every operator continues where it stopped.

`python -m tests.test_state_upgrade` writes the state of this release, for later releases. State is only added: that of
earlier releases is never changed.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dovetail
from dovetail.condition import parse
from dovetail.condition.graph import Graph, parse_graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Matches, Side
from dovetail.errors import StateError
from dovetail.monitoring import recording
from dovetail.operators.protocol import JoinOperator, Manifest, Workspace
from dovetail.operators.registry import RENAMED, operator_names, operator_spec, present_name
from dovetail.planning.planner import plan_operator
from dovetail.spark.early import log
from dovetail.spark.streaming import stream_join, window_join
from dovetail.spark.streaming.state_dir import check_layout
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

GOLDEN = Path(__file__).parent / "golden" / "state"
ROWS, STEP, MEMORY_ROWS, BLOCK_ROWS = 120, 10, 60, 10
ON = {2: "l.k = r.k", 3: "a.k = b.k AND b.k = c.k"}


def tables(inputs: int) -> list[pa.RecordBatch]:
    """The same rows in every release: keys from a small domain, some of them null, and strings."""
    batches = []
    for number in range(inputs):
        at = np.arange(ROWS)
        keys = (at * (7 + 4 * number) + number) % (17 if inputs == 2 else 41)
        batches.append(
            pa.record_batch(
                {
                    "k": pa.array(keys, pa.int64(), mask=at % 29 == 0),
                    "s": pa.array([f"row {number}-{i}" for i in at]),
                    "row": pa.array(at),
                }
            )
        )
    return batches


def made(name: str, inputs: int, store: BlockStore) -> JoinOperator:
    """An operator of that name, with little memory if it can spill."""
    schema = tables(2)[0].schema
    graph = Graph.of(parse(ON[2], schema, schema)) if inputs == 2 else parse_graph(ON[3], dict.fromkeys("abc", schema))
    name, parameters = present_name(name, {})
    spec = operator_spec(name, inputs)
    budget = Budget(MEMORY_ROWS if spec.spills else None, "rows")
    if spec.windows:
        parameters["window"] = dovetail.window(rows=10 * ROWS)
    plan = plan_operator(name, graph, parameters=parameters)
    return plan.make_operator(Workspace.of(plan, budget, store, BLOCK_ROWS, Counters()))


def rows_of(results: Matches) -> Iterator[tuple[int, ...]]:
    """Results as row numbers."""
    taken = zip(results.batches, results.rows, strict=True)
    yield from zip(*(np.asarray(batch.column("row"))[rows].tolist() for batch, rows in taken), strict=True)


def feed(operator: JoinOperator, inputs: int, first: int, last: int) -> Iterator[tuple[int, ...]]:
    """Rows of all inputs in turn."""
    for start in range(first, last, STEP):
        for number, batch in enumerate(tables(inputs)):
            for results in operator.arrive(position(number, inputs), batch.slice(start, STEP)):
                yield from rows_of(results)


def position(number: int, inputs: int) -> int:
    return Side(number) if inputs == len(Side) else number


def definition(inputs: int) -> Counter[tuple[int, ...]]:
    keys = [batch.column("k").to_pylist() for batch in tables(inputs)]
    found: list[tuple[tuple[int, ...], int]] = [((i,), key) for i, key in enumerate(keys[0]) if key is not None]
    for others in keys[1:]:
        found = [((*rows, i), key) for rows, key in found for i, other in enumerate(others) if other == key]
    return Counter(rows for rows, _ in found)


CASES = [(name, inputs) for inputs in (2, 3) for name in operator_names(inputs)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("release", sorted(path.name for path in GOLDEN.iterdir() if path.is_dir()))
@pytest.mark.parametrize(("name", "inputs"), [*CASES, *((former, 2) for former in RENAMED)])
def test_state_of_an_earlier_release_is_restored(release: str, name: str, inputs: int, tmp_path: Path) -> None:
    stored = GOLDEN / release / f"{name}-{inputs}"
    if not stored.is_dir():
        pytest.skip(f"{name} is newer than {release}")
    shutil.copytree(stored, tmp_path / "state")
    document = json.loads((stored / "manifest.json").read_text())
    operator = made(name, inputs, BlockStore(tmp_path / "state"))
    operator.restore(Manifest(document["version"], document["state"], tuple(document["segments"])))
    found = [tuple(rows) for rows in document["found"]]
    found += feed(operator, inputs, ROWS // 2, ROWS)
    for number in range(inputs):
        operator.end(position(number, inputs))
    for results in operator.clean_up():
        found += rows_of(results)
    assert Counter(found) == definition(inputs)


def test_the_upgrade_note_has_the_formats_of_today() -> None:
    page = (Path(__file__).parents[1] / "docs" / "upgrading.md").read_text()
    table = page.partition("| state |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if line.startswith("| ")]
    formats = {row[1]: row[3] for row in rows}
    assert formats == {
        "streams without a window": str(stream_join.FORMAT),
        "streams with a window": str(window_join.FORMAT),
        "waves": str(log.FORMAT),
        "recordings": str(recording.FORMAT),
    }


def test_state_of_another_format_is_refused_and_stays(tmp_path: Path) -> None:
    layout = {"format": stream_join.FORMAT, "algorithm": "shj", "cells": 4}
    check_layout(tmp_path, {**layout, "format": stream_join.FORMAT - 1})
    stored = (tmp_path / "layout.json").read_bytes()
    with pytest.raises(StateError, match=rf"format was {stream_join.FORMAT - 1} and is now {stream_join.FORMAT}\."):
        check_layout(tmp_path, layout)
    assert (tmp_path / "layout.json").read_bytes() == stored


@pytest.mark.parametrize("tasks", ["md", "dd"])
def test_streams_by_a_former_name_go_on_by_the_present_one(tasks: str, tmp_path: Path) -> None:
    layout = {"format": stream_join.FORMAT, "algorithm": f"rpj_{tasks}", "cells": 4}
    (tmp_path / "layout.json").write_text(json.dumps(layout))
    check_layout(tmp_path, {**layout, "algorithm": "rpj", "parameters": {"tasks": tasks}})
    with pytest.raises(StateError, match=r"parameters was .* and is now None"):
        check_layout(tmp_path, {**layout, "algorithm": "rpj"})


def write_state(root: Path) -> None:
    """Write the state of every operator of this release, halfway through a join."""
    for name, inputs in CASES:
        directory = root / f"{name}-{inputs}"
        if directory.exists():
            continue
        operator = made(name, inputs, BlockStore(directory))
        found = list(feed(operator, inputs, 0, ROWS // 2))
        manifest = operator.snapshot()
        directory.mkdir(parents=True, exist_ok=True)
        for path in directory.iterdir():
            if path.name not in manifest.segments:
                path.unlink()
        document = {"version": manifest.version, "state": manifest.state, "segments": manifest.segments, "found": found}
        (directory / "manifest.json").write_text(json.dumps(document) + "\n")


if __name__ == "__main__":
    write_state(GOLDEN / dovetail.__version__)
