"""One side of a hash join: rows in memory that grow, and immutable runs on disk from earlier snapshots.

    resident     RowStore + HashTable              grows with every arrival
    frozen       runs sorted by hash, memory-mapped   written by `freeze`, merged when several have a similar size

A run needs no index of its own: hashes are spread evenly, so interpolation on the sorted hashes finds a key at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.batch import Rows, Side, take_rows
from dovetail.kernels.sorted_probe import expand, find_hashes
from dovetail.state.blocks import Block, BlockStore
from dovetail.state.hash_table import HashTable
from dovetail.state.pieces import pieces_of
from dovetail.state.row_store import RowStore

Hashes = NDArray[np.int64]

HASH = "__hash"  # the extra column of a frozen run
FAN = 8  # runs of one size class that are merged into one


class _Part:
    """Rows with their table; a new part begins where a row store is full."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = RowStore(schema)
        self.table = HashTable()


class HashSide:
    def __init__(self, side: Side, schema: pa.Schema, blocks: BlockStore) -> None:
        self.side = side
        self.runs: list[Block] = []
        self._schema = schema
        self._blocks = blocks
        self._parts: list[_Part] = []
        self._mapped: dict[str, tuple[pa.RecordBatch, Hashes]] = {}

    @property
    def resident_rows(self) -> int:
        return sum(len(part.rows) for part in self._parts)

    @property
    def resident_bytes(self) -> int:
        return sum(part.rows.nbytes + part.table.nbytes for part in self._parts)

    def insert(self, batch: pa.RecordBatch, hashes: Hashes) -> None:
        if batch.num_rows == 0:
            return
        if not self._parts or not self._parts[-1].rows.fits(batch):
            self._parts.append(_Part(self._schema))
        part = self._parts[-1]
        part.rows.append(batch)
        part.table.insert(hashes)

    def probe(self, hashes: Hashes, most_pairs: int) -> Iterator[tuple[pa.RecordBatch, Rows, Rows]]:
        """(rows of this side, probing row, row of this side), in pieces of bounded size."""
        for part in self._parts:
            for probing, mine in part.table.find(hashes, most_pairs):
                yield part.rows.view(), probing, mine
        for run in self.runs:
            batch, resident = self._map(run)
            starts, counts = find_hashes(resident, hashes)
            for start, end, pairs in pieces_of(counts, int(counts.sum()), most_pairs):
                probing, mine = expand(starts, counts, start, end, pairs)
                yield batch, probing, mine

    def forget(self) -> None:
        """Nothing will probe this side again."""
        self._parts = []
        self.runs = []
        self._mapped = {}

    def freeze(self) -> list[Block]:
        """Move the residents into a run; merge runs where one size class has many; return all runs."""
        for part in self._parts:
            self.runs.append(self._write(part.rows.view(), part.table.hashes))
        self._parts = []
        while (crowd := _crowded(self.runs)) is not None:
            mapped = [self._map(run) for run in crowd]
            batch = pa.concat_batches([b for b, _ in mapped])
            merged = self._write(batch, np.concatenate([h for _, h in mapped]))
            self.runs = [run for run in self.runs if run not in crowd] + [merged]
        self._mapped = {run.name: self._mapped[run.name] for run in self.runs if run.name in self._mapped}
        return self.runs

    def thaw(self, runs: list[Mapping[str, Any]]) -> None:
        self.runs = [Block.from_json(run) for run in runs]

    def _write(self, batch: pa.RecordBatch, hashes: Hashes) -> Block:
        order = np.argsort(hashes, kind="stable")
        rows = take_rows(batch, order).append_column(HASH, pa.array(hashes[order]))
        return self._blocks.write(rows, self.side.alias)

    def _map(self, run: Block) -> tuple[pa.RecordBatch, Hashes]:
        if run.name not in self._mapped:
            batch = self._blocks.read(run, verify=True)
            last = batch.num_columns - 1
            rows = pa.RecordBatch.from_arrays(batch.columns[:last], schema=self._schema)
            self._mapped[run.name] = (rows, np.asarray(batch.column(last)))
        return self._mapped[run.name]


def _crowded(runs: list[Block]) -> list[Block] | None:
    """Runs of one size class that should become one; None when no class has that many."""
    classes: dict[int, list[Block]] = {}
    for run in runs:
        classes.setdefault(int(math.log(run.rows, FAN)), []).append(run)
    return next((crowd for crowd in classes.values() if len(crowd) >= FAN), None)
