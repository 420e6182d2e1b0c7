"""Symmetric hash join: both inputs build, both probe, every pair is emitted when its later row arrives.

    left  batch --> probe right rows --> results        arrive: probe, then insert
                \\-> insert in left rows
    right batch --> probe left rows  --> results        react, clean_up: never any pending work
                \\-> insert in right rows

Guarantee: every matching pair exactly once, when its later row arrives. Nothing is spilled: a budget that cannot hold
both inputs raises BudgetError. Once a side has ended, further rows of the other side are not kept, so if one side is
read first it is an ordinary hash join.

Wilschut and Apers, Dataflow query execution in a parallel main-memory environment, PDIS 1991.

Deviations: batches instead of tuples. Hashes are 64 bits wide; a single fixed-width key is hashed one to one, all other
keys are checked after the probe. For snapshots, rows are frozen into immutable runs sorted by hash.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import concatenate
from dovetail.columns.row_store import RowStore
from dovetail.columns.taking import take_rows
from dovetail.condition import matching
from dovetail.condition.graph import Graph
from dovetail.condition.render import conjunction
from dovetail.core.parts import chunk_ranges
from dovetail.core.rows import Matches, Rows, Side
from dovetail.kernels.searching import expand, find_hashes
from dovetail.matching.equal_keys import HashKeys
from dovetail.operators.protocol import Approach, JoinOperator, Manifest, OperatorSpec, Usage, Workspace
from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.budget import BUFFER
from dovetail.storage.hash_table import HashTable

Hashes = NDArray[np.int64]

HASH = "__hash"  # the extra column of a frozen run
FAN = 8  # runs of one size class that are merged into one


class _TablePart:
    """Rows with their hash table; a new part starts when a row store is full."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = RowStore(schema)
        self.table = HashTable()


class HashSide:
    def __init__(self, side: Side, schema: pa.Schema, blocks: BlockStore) -> None:
        self.side = side
        self.runs: list[Block] = []
        self._schema = schema
        self._blocks = blocks
        self._parts: list[_TablePart] = []
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
            self._parts.append(_TablePart(self._schema))
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
            for start, end, pairs in chunk_ranges(counts, int(counts.sum()), most_pairs):
                probing, mine = expand(starts, counts, start, end, pairs)
                yield batch, probing, mine

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows."""
        yield from (part.rows.view() for part in self._parts)
        yield from (self._map(run)[0] for run in self.runs)

    def sample_hashes(self, size: int) -> Hashes:
        """The hashes of some rows, in the order of arrival."""
        whole = [part.table.hashes for part in self._parts] + [self._map(run)[1] for run in self.runs]
        step = max(1, sum(map(len, whole)) // size)
        return np.concatenate([hashes[::step] for hashes in whole]) if whole else np.empty(0, np.int64)

    def nbytes_with(self, batch: pa.RecordBatch) -> int:
        """The size of the side after adding such a batch."""
        table = self._parts[-1].table if self._parts else HashTable()
        more = table.nbytes_with(batch.num_rows) - (table.nbytes if self._parts else 0)
        return self.resident_bytes + int(batch.nbytes) + more

    def forget(self) -> None:
        """Drop all rows: no future row will probe this side."""
        self._parts = []
        self.runs = []
        self._mapped = {}

    def freeze(self) -> list[Block]:
        """Move the residents into a run; merge runs if one size class has many; return all runs."""
        for part in self._parts:
            self.runs.append(self._write(part.rows.view(), part.table.hashes))
        self._parts = []
        while (crowd := _runs_to_merge(self.runs)) is not None:
            mapped = [self._map(run) for run in crowd]
            batch = concatenate([b for b, _ in mapped])
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


def _runs_to_merge(runs: list[Block]) -> list[Block] | None:
    """Runs of one size class to merge; None if no class has enough of them."""
    classes: dict[int, list[Block]] = {}
    for run in runs:
        classes.setdefault(int(math.log(run.rows, FAN)), []).append(run)
    return next((crowd for crowd in classes.values() if len(crowd) >= FAN), None)


MOST_PAIRS = 1 << 20  # pairs per yield


class Shj(JoinOperator):
    spec: ClassVar[OperatorSpec] = OperatorSpec(name="shj", spills=False, emits_at_arrival=True)

    def __init__(self, workspace: Workspace) -> None:
        self._condition = workspace.condition
        self._budget = workspace.budget
        self._counters = workspace.counters
        self._keys = HashKeys(workspace.condition)
        self._checks = self._keys.checks
        self._sides = tuple(HashSide(side, workspace.condition.schema(side), workspace.blocks) for side in Side)
        self._ended = [False, False]
        self._version = 0

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        condition = graph.condition
        if condition.equalities:
            return None
        return "a hash join needs at least one equality between the two sides"

    @staticmethod
    def approach(graph: Graph) -> Approach:
        equal = graph.condition.equalities
        return Approach(f"symmetric hash join on {conjunction(equal)}", equal)

    def arrive(self, side: Side, batch: pa.RecordBatch) -> Iterator[Matches]:
        rows, hashes = self._keys.hash(side, batch)
        if rows is not None:
            batch = take_rows(batch, rows)  # the other rows match nothing and are not kept
        self._counters.probes += len(hashes)
        for their_rows, probing, theirs in self._sides[side.other].probe(hashes, MOST_PAIRS):
            self._counters.pairs_tested += len(probing)
            yield self._check_pairs(Matches.oriented(side, batch, probing, their_rows, theirs))
        if not self._ended[side.other]:
            self._sides[side].insert(batch, hashes)
            self._budget.release(BUFFER)
            self._hold(side)

    def end(self, side: Side) -> None:
        self._ended[side] = True
        self._sides[side.other].forget()  # they waited only for rows of this side
        self._hold(side.other)

    def clean_up(self) -> Iterator[Matches]:
        return iter(())

    def snapshot(self) -> Manifest:
        self._version += 1
        runs = [side.freeze() for side in self._sides]
        state = {"ended": list(self._ended), "runs": [[run.to_json() for run in side] for side in runs]}
        return Manifest(self._version, state, tuple(run.name for side in runs for run in side))

    def restore(self, manifest: Manifest) -> None:
        self._version = manifest.version
        self._ended = list(manifest.state["ended"])
        for side, runs in zip(self._sides, manifest.state["runs"], strict=True):
            side.thaw(runs)

    # For operators that take over.

    def size_with(self, side: Side, batch: pa.RecordBatch) -> tuple[int, int]:
        """Rows and bytes after adding such a batch, including those frozen by a snapshot."""
        usage = self.usage
        more = self._sides[side].nbytes_with(batch) - self._sides[side].resident_bytes
        rows = usage.resident_rows + usage.spilled_rows + int(batch.num_rows)
        return rows, usage.resident_bytes + usage.spilled_bytes + more

    def sample_hashes(self, side: Side, size: int) -> Hashes:
        """The hashes of some rows of a side."""
        return self._sides[side].sample_hashes(size)

    def give_up(self, side: Side) -> Iterator[pa.RecordBatch]:
        """All rows of a side; it no longer holds them once all have been taken."""
        yield from self._sides[side].batches()
        self._sides[side].forget()
        self._hold(side)

    @property
    def usage(self) -> Usage:
        rows = sum(side.resident_rows for side in self._sides)
        nbytes = sum(side.resident_bytes for side in self._sides)
        frozen = [run for side in self._sides for run in side.runs]
        return Usage(rows, nbytes, sum(run.rows for run in frozen), sum(run.nbytes for run in frozen))

    def _check_pairs(self, pairs: Matches) -> Matches:
        if not self._checks:
            return pairs
        return pairs.only(matching(self._checks, pairs.left, pairs.left_rows, pairs.right, pairs.right_rows))

    def _hold(self, side: Side) -> None:
        kept = self._sides[side]
        self._budget.hold(f"{side.alias} residents", kept.resident_rows, kept.resident_bytes)
