"""State that an earlier release wrote is restored by this one: every operator goes on where it was.

`python -m tests.test_state_upgrade` writes the state of this release, for the releases after it. State is only ever
added: what an earlier release wrote stays as it is.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dovetail
from dovetail.condition import parse
from dovetail.condition.graph import parse_graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Pairs, Side
from dovetail.operators.multi import MultiWorkspace
from dovetail.operators.protocol import Manifest, Workspace
from dovetail.operators.registry import MULTI_REGISTRY, REGISTRY, multi_operator_class, operator_class
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

GOLDEN = Path(__file__).parent / "golden" / "state"
ROWS, STEP, MEMORY_ROWS, BLOCK_ROWS = 120, 10, 60, 10
ON = {2: "l.k = r.k", 3: "a.k = b.k AND b.k = c.k"}


def tables(inputs: int) -> list[pa.RecordBatch]:
    """The same rows in every release: keys of a small domain, some of them null, and text."""
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


def made(name: str, inputs: int, store: BlockStore) -> Any:
    """An operator of that name with little memory."""
    schema = tables(2)[0].schema
    budget, counters = Budget(MEMORY_ROWS, "rows"), Counters()
    if inputs == 2:
        parameters = {"window": dovetail.window(rows=10 * ROWS)} if name == "spo" else {}
        if name in ("shj", "spo"):
            budget = Budget(None)
        condition = parse(ON[2], schema, schema)
        return operator_class(name)(
            Workspace(condition, budget, store, BLOCK_ROWS, counters, parameters=dict(parameters))
        )
    graph = parse_graph(ON[3], dict.fromkeys("abc", schema))
    return multi_operator_class(name)(MultiWorkspace(graph, budget, store, BLOCK_ROWS, counters))


def identity(number: int, inputs: int) -> Any:
    return Side(number) if inputs == 2 else "abc"[number]


def rows_of(results: Any) -> Iterator[tuple[int, ...]]:
    """Results as row numbers."""
    if isinstance(results, Pairs):
        taken = [(results.left, results.left_rows), (results.right, results.right_rows)]
    else:
        taken = [(results.batches[alias], results.rows[alias]) for alias in "abc"]
    yield from zip(*(np.asarray(batch.column("row"))[rows].tolist() for batch, rows in taken), strict=True)


def feed(operator: Any, inputs: int, first: int, last: int) -> Iterator[tuple[int, ...]]:
    """Rows of all inputs in turn."""
    for start in range(first, last, STEP):
        for number, batch in enumerate(tables(inputs)):
            for results in operator.arrive(identity(number, inputs), batch.slice(start, STEP)):
                yield from rows_of(results)


def definition(inputs: int) -> Counter[tuple[int, ...]]:
    keys = [batch.column("k").to_pylist() for batch in tables(inputs)]
    found: list[tuple[tuple[int, ...], int]] = [((i,), key) for i, key in enumerate(keys[0]) if key is not None]
    for others in keys[1:]:
        found = [((*rows, i), key) for rows, key in found for i, other in enumerate(others) if other == key]
    return Counter(rows for rows, _ in found)


CASES = [(name, 2) for name in sorted(REGISTRY)] + [(name, 3) for name in sorted(MULTI_REGISTRY)]


@pytest.mark.parametrize("release", sorted(path.name for path in GOLDEN.iterdir() if path.is_dir()))
@pytest.mark.parametrize(("name", "inputs"), CASES)
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
        operator.end(identity(number, inputs))
    for results in operator.clean_up():
        found += rows_of(results)
    assert Counter(found) == definition(inputs)


def write_state(root: Path) -> None:
    """The state of every operator of this release, half-way through."""
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
