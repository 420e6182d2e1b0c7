"""Sorted blocks joined range by range: every pair once, with any amount of memory."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Matches
from dovetail.operators.blockwise.range_join import Origin, RangeJoin, RangeRows
from dovetail.operators.protocol import Workspace
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

SCHEMA = pa.schema([("k", pa.int64()), ("row", pa.int64())])


def workspace(directory: Path, memory_rows: int | None, block_rows: int) -> Workspace:
    counters = Counters()
    store = BlockStore(directory, counters=counters)
    graph = Graph.of(parse("l.k = r.k", SCHEMA, SCHEMA))
    return Workspace(graph, Budget(memory_rows, "rows", counters), store, block_rows, counters)


def write(store: BlockStore, keys: list[int], first: int, *, zone: bool) -> Origin:
    codes = np.sort(np.array(keys, np.int64))
    rows = pa.record_batch({"k": codes, "row": np.arange(first, first + len(codes))}, SCHEMA)
    return Origin(store.write(rows, "l", (int(codes[0]), int(codes[-1])) if zone else None), first)


def all_pairs(left: RangeRows, right: RangeRows) -> Iterator[Matches]:
    mine, theirs = (np.asarray(rows.batch.column("k")) for rows in (left, right))
    lefts, rights = np.nonzero(mine[:, None] == theirs[None, :])
    yield Matches.pairs(left.batch, lefts, right.batch, rights)


@pytest.mark.parametrize("memory_rows", [None, 12, 40])
@pytest.mark.parametrize("keys", [1, 5, 200])
def test_every_pair_is_found_once(memory_rows: int | None, keys: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(keys)
    space = workspace(tmp_path, memory_rows, 3)
    sides = [
        [write(space.blocks, rng.integers(0, keys, 3).tolist(), 100 * block, zone=block % 2 == 0) for block in range(9)]
        for _ in range(2)
    ]
    found = []
    for results in RangeJoin(space, "k").run(*sides, all_pairs):
        left, right = (
            np.asarray(batch.column("row"))[rows]
            for batch, rows in ((results.left, results.left_rows), (results.right, results.right_rows))
        )
        found += list(zip(left.tolist(), right.tolist(), strict=True))
    rows = [[(key, row) for origin in side for key, row in _rows(space.blocks, origin)] for side in sides]
    assert sorted(found) == sorted((i, j) for key, i in rows[0] for other, j in rows[1] if key == other)
    assert memory_rows is None or space.counters.peak_rows_in_memory <= memory_rows


def _rows(store: BlockStore, origin: Origin) -> list[tuple[int, int]]:
    batch = store.read(origin.block)
    return list(zip(batch.column("k").to_pylist(), batch.column("row").to_pylist(), strict=True))


def test_blocks_beyond_the_other_side_are_not_read(tmp_path: Path) -> None:
    space = workspace(tmp_path, 12, 3)
    left = [write(space.blocks, [1, 2, 3], 0, zone=True), write(space.blocks, [50, 60, 70], 3, zone=True)]
    right = [write(space.blocks, [55, 60, 65], 0, zone=True)]
    assert sum(results.size for results in RangeJoin(space, "k").run(left, right, all_pairs)) == 1
    assert space.counters.pages_read_random == 2
