"""Symmetric hash join: both inputs build, both probe, every pair appears when its later row arrives.

    left  batch --> probe right rows --> results        arrive: probe, then insert
                \\-> insert in left rows
    right batch --> probe left rows  --> results        react, clean_up: nothing is ever left over
                \\-> insert in right rows

Guarantee: every matching pair exactly once, at the arrival of its later row. Nothing is spilled: a budget that cannot
hold both inputs is an error that says so. Once a side has ended, rows of the other side are not kept any more, so that
with one side first it is an ordinary hash join.

Wilschut and Apers, Dataflow query execution in a parallel main-memory environment, PDIS 1991.

Deviations: batches instead of tuples. Hashes are 64 bits wide; a single fixed-width key is hashed one to one, all other
keys are checked after the probe. For snapshots, rows are frozen into immutable runs sorted by hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa

from dovetail.batch import Pairs, Side, take_rows
from dovetail.condition import Condition, matching
from dovetail.operators.protocol import INNER, Manifest, Parameters, Usage, Workspace
from dovetail.state.budget import BUFFER
from dovetail.state.hash_keys import HashKeys
from dovetail.state.hashing.side import HashSide

MOST_PAIRS = 1 << 20  # pairs in one yield


class Shj:
    name: ClassVar[str] = "shj"
    spills: ClassVar[bool] = False
    join_types: ClassVar[tuple[str, ...]] = INNER
    parameters: ClassVar[Parameters] = {}

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
    def refuses(condition: Condition) -> str | None:
        if condition.equalities:
            return None
        return "a hash join needs at least one equality between the two sides"

    def arrive(self, side: Side, batch: pa.RecordBatch) -> Iterator[Pairs]:
        rows, hashes = self._keys.hash(side, batch)
        if rows is not None:
            batch = take_rows(batch, rows)  # the others match nothing and need not be kept
        self._counters.probes += len(hashes)
        for their_rows, probing, theirs in self._sides[side.other].probe(hashes, MOST_PAIRS):
            self._counters.pairs_tested += len(probing)
            yield self._checked(Pairs.oriented(side, batch, probing, their_rows, theirs))
        if not self._ended[side.other]:
            self._sides[side].insert(batch, hashes)
            self._budget.release(BUFFER)
            self._hold(side)

    def end(self, side: Side) -> None:
        self._ended[side] = True
        self._sides[side.other].forget()  # they waited for rows of this side only
        self._hold(side.other)

    def react(self) -> Iterator[Pairs]:
        return iter(())

    def clean_up(self) -> Iterator[Pairs]:
        return iter(())

    def expire(self, watermark: int) -> Iterator[Pairs]:
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

    @property
    def usage(self) -> Usage:
        rows = sum(side.resident_rows for side in self._sides)
        nbytes = sum(side.resident_bytes for side in self._sides)
        frozen = [run for side in self._sides for run in side.runs]
        return Usage(rows, nbytes, sum(run.rows for run in frozen), sum(run.nbytes for run in frozen))

    def _checked(self, pairs: Pairs) -> Pairs:
        if not self._checks:
            return pairs
        good = matching(self._checks, *pairs)
        return pairs._replace(left_rows=pairs.left_rows[good], right_rows=pairs.right_rows[good])

    def _hold(self, side: Side) -> None:
        kept = self._sides[side]
        self._budget.hold(f"{side.alias} residents", kept.resident_rows, kept.resident_bytes)
