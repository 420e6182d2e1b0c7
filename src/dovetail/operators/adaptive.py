"""Adaptive join: in memory while both inputs fit, then with the operator that suits the data seen so far.

    in memory   symmetric hash join: every pair is emitted when its later row arrives
    switch      when half of the budget is used, all rows are handed over as residents already joined
    spilling    diner_merge, if partners arrive at about the same time: its oldest rows are evicted first
                diner, if rows have many partners and arrive without a pause: it keeps the most productive rows
                else pmj, which is the fastest, and merges in pauses

Guarantee: every matching pair exactly once. All rows that are handed over have been joined with each other, and the
operators treat them so: for diner and diner_merge they have been resident together, for pmj they are a run pair that
has been joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition.graph import Graph
from dovetail.condition.render import conjunction
from dovetail.core.rows import Matches, Side
from dovetail.estimation.estimate import Estimator
from dovetail.operators.diner.diner import Diner
from dovetail.operators.diner_merge import DinerMerge
from dovetail.operators.hashing.shj import Shj
from dovetail.operators.pmj.pmj import Pmj
from dovetail.operators.protocol import Approach, JoinOperator, Manifest, OperatorSpec, Running, Usage, Workspace

Hashes = NDArray[np.int64]

BUFFER_SHARE = 16  # at most 1/16 of the budget is for arriving rows
SAMPLE = 1 << 13  # rows of each side from which the order of arrival is judged
FEWEST = 64  # with fewer matching rows, the order of arrival is not judged
MANY_RESULTS = 4  # per row in memory: then producing results is most of the work, however rows are spilled
APART, DEVIATION = 1 / 3, 0.236  # mean and deviation of the distance of two random positions in a side, as shares of it


class Spilling(JoinOperator, Protocol):
    """An operator that can take over another one's rows."""

    def adopt(self, rows: tuple[Iterable[pa.RecordBatch], Iterable[pa.RecordBatch]], matches: int) -> None: ...


TARGETS: dict[str, type[Spilling]] = {"diner": Diner, "diner_merge": DinerMerge, "pmj": Pmj}


def choose_spilling(clustered: bool, many_results: bool, paused: bool) -> Running:
    if clustered:
        return Running("diner_merge", "partners arrive at about the same time, so that old rows leave first")
    if many_results and not paused:
        return Running("diner", "rows have many partners and arrive without a pause, so that the most useful ones stay")
    return Running("pmj", "partners arrive at any time, so that rows are merged in large runs")


class Adaptive(JoinOperator):
    spec: ClassVar[OperatorSpec] = OperatorSpec(name="adaptive", adapts=True)

    def __init__(self, workspace: Workspace) -> None:
        workspace.shares  # noqa: B018  refuses a budget that is too small
        self._workspace = workspace
        self._budget = workspace.budget
        self._in_memory: Shj | None = Shj(workspace)
        self._operator: JoinOperator = self._in_memory
        self._ended = [False, False]
        self._reason = "all rows fit in memory"
        self._found = 0  # results from the rows that were handed over
        self._paused = False  # whether an input has paused so far
        self._version = 0  # of the snapshots, across operators

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        return Shj.refuses(graph)

    @staticmethod
    def approach(graph: Graph) -> Approach:
        equal = graph.condition.equalities
        text = (
            f"symmetric hash join on {conjunction(equal)} while memory lasts; then diner_merge if partners "
            "arrive at about the same time, diner if they are many and nothing pauses, else pmj"
        )
        return Approach(text, equal)

    @property
    def running(self) -> Running:
        """The operator that is joining now, and why."""
        return Running(self._operator.spec.name, self._reason)

    @property
    def joins_at_arrival(self) -> bool:
        return self._operator.spec.emits_at_arrival

    def arrive(self, side: Side, batch: pa.RecordBatch) -> Iterator[Matches]:
        if self._in_memory is not None and not self._fits(side, batch):
            self._switch(self._in_memory)
        found = self._operator.arrive(side, batch)
        return found if self._in_memory is None else map(self._count, found)

    def _count(self, results: Matches) -> Matches:
        self._found += results.size
        return results

    def end(self, side: Side) -> None:
        self._ended[side] = True
        self._operator.end(side)

    def react(self) -> Iterator[Matches]:
        self._paused = True
        return self._operator.react()

    def clean_up(self) -> Iterator[Matches]:
        return self._operator.clean_up()

    def snapshot(self) -> Manifest:
        manifest = self._operator.snapshot()
        state = {
            "running": self._operator.spec.name,
            "reason": self._reason,
            "ended": list(self._ended),
            "found": self._found,
            "state": manifest.state,
        }
        self._version += 1
        return Manifest(self._version, state, manifest.segments)

    def restore(self, manifest: Manifest) -> None:
        state, self._version = manifest.state, manifest.version
        self._ended, self._reason, self._found = list(state["ended"]), state["reason"], state["found"]
        self._paused = True  # a restart counts as a pause
        if state["running"] != self._operator.spec.name:
            self._change_to(state["running"])
        self._operator.restore(Manifest(manifest.version, state["state"], manifest.segments))

    @property
    def usage(self) -> Usage:
        return self._operator.usage

    def _fits(self, side: Side, batch: pa.RecordBatch) -> bool:
        """Whether the rows can be kept in memory. Once the other side has ended, they are not kept."""
        limit = self._budget.limit
        if limit is None or self._ended[side.other]:
            return True
        assert self._in_memory is not None
        held = self._budget.measure(*self._in_memory.size_with(side, batch))
        buffer = self._workspace.block_rows if self._budget.unit == "rows" else limit // BUFFER_SHARE
        return 2 * held + buffer <= limit  # during the handover, both operators briefly hold all rows

    def _switch(self, source: Shj) -> None:
        """Hand all rows over to the other operator."""
        left, right = (source.sample_hashes(side, SAMPLE) for side in Side)
        many = self._found >= MANY_RESULTS * source.usage.resident_rows
        chosen = choose_spilling(is_clustered(left, right), many, self._paused)
        self._reason = chosen.reason
        spilling = self._change_to(chosen.operator)
        spilling.adopt((source.give_up(Side.LEFT), source.give_up(Side.RIGHT)), self._found)
        for side in Side:
            if self._ended[side]:
                spilling.end(side)

    def _change_to(self, name: str) -> Spilling:
        # In process, estimates come from a sample of all rows; do not mix them with what the operator reports.
        self.estimator = Estimator()
        spilling = TARGETS[name](replace(self._workspace, estimator=self.estimator))
        self._in_memory, self._operator = None, spilling
        return spilling


def is_clustered(left: Hashes, right: Hashes) -> bool:
    """Whether partners are closer to each other, in the order of arrival, than by chance."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    first, last = np.searchsorted(ordered, left), np.searchsorted(ordered, left, side="right")
    rows = np.flatnonzero(last > first)
    if len(rows) < FEWEST:
        return False
    partners = order[np.random.default_rng(0).integers(first[rows], last[rows])]  # one partner of each
    apart = np.abs(rows / len(left) - partners / len(right)).mean()
    return bool(apart < APART - max(0.02, 4 * DEVIATION / np.sqrt(len(rows))))
