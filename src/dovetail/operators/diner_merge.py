"""DINER with merged runs: DINER decides which rows stay, and evicted rows are joined by merging sorted runs.

    arriving   as diner: residents are kept by the results of their values
    reactive   evicted rows are sorted runs; the smallest are merged first, instead of block nested loops
    cleanup    evict all residents, then join all runs: range by range if keys are equal, else by merging

Guarantee: every matching pair exactly once. A pair whose rows were in memory together was joined there (the residence
rule); any other pair is found by the merge that combines its two runs.

Based on Bornea et al., TKDE 2010 (residence) and Dittrich et al., VLDB 2002 (merging); neither paper has the
combination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import no_matches
from dovetail.condition import Condition
from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Matches, Rows, Side
from dovetail.kernels.windows import apart
from dovetail.matching.sweep_order import NO_WORDS, Items, SweepOrder
from dovetail.operators.blockwise.range_join import Origin, RangeJoin, RangeRows
from dovetail.operators.diner.diner import EVICTION_PARAMETERS, Diner
from dovetail.operators.diner.keys import Keyed
from dovetail.operators.diner.sides import FreeMemory, SpilledRows
from dovetail.operators.pmj.merge import Merge, meetings
from dovetail.operators.pmj.pairs import JoinTypeEmitter
from dovetail.operators.pmj.pmj import Pmj
from dovetail.operators.pmj.runs import START, Pages, RunGroup, SweepRun, write_run
from dovetail.operators.pmj.scheduler import MergeScheduler
from dovetail.operators.protocol import Approach, OperatorSpec, Workspace
from dovetail.storage.residence import met_in_memory

Words = NDArray[np.int64]

ARRIVED, LEFT = "__arrived", "__left"


class DinerMerge(Diner):
    spec: ClassVar[OperatorSpec] = OperatorSpec(
        name="diner_merge",
        parameters={**EVICTION_PARAMETERS, "fan_in": int},
    )

    @staticmethod
    def refuses(graph: Graph) -> str | None:
        return Diner.refuses(graph) or Pmj.refuses(graph)

    @staticmethod
    def approach(graph: Graph) -> Approach:
        text, driving = Diner.approach(graph)
        return Approach(f"{text}, and merges them in sorted runs", driving)

    def _make_spilled(self, workspace: Workspace) -> SpilledRows:
        return MergedRuns(workspace)


class MergedRuns:
    """Spilled rows in sorted runs, joined by merging as in PMJ, with the residence rule of DINER.

        spill(side, …)   one run of that side, in sweep order, each row with its ticks of arrival and eviction
        run(…)           merges the smallest runs into one, joining rows of different runs (pmj/scheduler.py)

    Each run is a group whose other side is empty, so that no pair is missed. Pairs found by a merge are dropped if
    their rows were joined in memory.
    """

    def __init__(self, workspace: Workspace) -> None:
        condition = workspace.condition
        self._schemas = condition.schemas
        self._budget = workspace.budget
        self._order = SweepOrder(condition)
        stored = {side.alias: with_ticks(condition.schemas[side]) for side in Side}
        self._pages = Pages(workspace.blocks, workspace.budget, stored)
        self._pairs = ResidencePairs(condition, self._order, workspace)
        self._merging: MergeScheduler[Matches] = MergeScheduler(workspace, self._pairs, self._pages)
        self._ranges = RangeJoin(workspace, START)
        self._spilled = [False, False]

    def has_spilled(self, side: Side) -> bool:
        return self._spilled[side]

    def spill(self, side: Side, batch: pa.RecordBatch, keyed: Keyed, arrived: Words, left: int) -> None:
        """Write evicted rows as one run."""
        if not any(self._spilled):
            samples = [batch if s is side else pa.RecordBatch.from_pylist([], self._schemas[s]) for s in Side]
            self._order.learn(*samples)
        ticks = [pa.array(arrived, pa.int64()), pa.array(np.full(batch.num_rows, left))]
        stored = pa.RecordBatch.from_arrays([*batch.columns, *ticks], schema=self._pages.schemas[side])
        written = write_run(self._order, self._pages, side, stored, NO_WORDS, self._merging.page, _all)
        runs, rows = [SweepRun(), SweepRun()], [0, 0]
        runs[side], rows[side] = written.run, batch.num_rows
        self._merging.groups.append(RunGroup(tuple(runs), tuple(rows)))
        self._spilled[side] = True

    def react(self, free_memory: FreeMemory, *, at_end: bool) -> Iterator[Matches]:
        """Merge until each side has a single run."""
        while self._has_work and (share := self._merging.share) is not None:
            for _ in free_memory(share, share):
                yield no_matches(self._schemas)
            # Not `yield from`: when this generator is dropped, the merge must stay open for the next call.
            for pairs in self._merging.react():  # noqa: UP028
                yield pairs

    def finish(self) -> Iterator[Matches]:
        """All remaining results. Runs of equal keys are joined in one pass, range by range."""
        if not self._order.has_points:
            yield from self._merging.finish()
            return
        yield from self._merging.finish_open()
        groups = self._merging.groups
        left, right = (
            [Origin(block, number) for number, group in enumerate(groups) for block in group.runs[side].blocks]
            for side in Side
        )
        if len(groups) > 1:
            yield from self._ranges.run(left, right, self._join_range)

    def _join_range(self, left: RangeRows, right: RangeRows) -> Iterator[Matches]:
        mine, theirs = (self._pages.items(side, *rows) for side, rows in zip(Side, (left, right), strict=True))
        return self._pairs.meet(mine, theirs)

    def release(self, free: int) -> Iterator[Matches]:
        """Complete a step and release all memory if more than `free` is taken; the merge can be resumed."""
        if self._merging.held > free:
            yield from self._merging.rest_of_step()
            self._merging.sleep()

    @property
    def _has_work(self) -> bool:
        """Whether both sides have spilled: runs of one side alone have no results."""
        return all(self._spilled)

    def to_json(self) -> dict[str, Any]:
        return {"spilled": list(self._spilled), "order": self._order.to_json(), "merging": self._merging.to_json()}

    def from_json(self, fields: dict[str, Any]) -> None:
        self._spilled = list(fields["spilled"])
        self._order.restore(fields["order"])
        self._merging.restore(fields["merging"])

    def names(self) -> list[str]:
        return [block.name for block in self._merging.blocks]

    def size(self) -> tuple[int, int]:
        """Rows and bytes on disk."""
        return self._merging.spilled


class ResidencePairs:
    """The results of a merge: pairs of different runs that were not joined in memory."""

    repeats = False

    def __init__(self, condition: Condition, order: SweepOrder, workspace: Workspace) -> None:
        self._schemas = condition.schemas
        self._order = order
        self._emitter = JoinTypeEmitter(condition, JoinType.INNER, workspace.counters)
        self.nothing = no_matches(condition.schemas)

    def select_needed(self, number: int, items: Items) -> Items:
        return items

    def step(self, merge: Merge, new: tuple[Items, ...]) -> Iterator[Matches]:
        for left, right in meetings(merge, new):
            yield from self.meet(left, right)

    def meet(self, left: Items, right: Items) -> Iterator[Matches]:
        """The results of these rows."""
        rows = [self._rows(side, items) for side, items in zip(Side, (left, right), strict=True)]
        return self._emitter.meet(rows[0], rows[1], (NO_WORDS, NO_WORDS), self._check(left, right))

    def left_over(self, groups: Sequence[RunGroup]) -> Iterator[Matches]:
        return iter(())

    def on_merged(self, merge: Merge, found: int) -> None:
        """Estimates come from a sample of all rows."""

    def _rows(self, side: Side, items: Items) -> pa.RecordBatch:
        """The rows without their ticks."""
        schema = self._schemas[side]
        return pa.RecordBatch.from_arrays(items.batch.columns[: len(schema)], schema=schema)

    def _check(self, left: Items, right: Items) -> Callable[[Rows, Rows], tuple[Rows, Rows]]:
        ticks = [[np.asarray(column) for column in items.batch.columns[-2:]] for items in (left, right)]

        def check(lefts: Rows, rights: Rows) -> tuple[Rows, Rows]:
            lefts, rights = apart(lefts, rights, left.sources, right.sources)
            new = ~met_in_memory(ticks[0][0][lefts], ticks[0][1][lefts], ticks[1][0][rights], ticks[1][1][rights])
            here = self._order.belongs(left, right, lefts, rights)
            if here is not None:
                new &= here
            return (lefts, rights) if new.all() else (lefts[new], rights[new])

        return check


def with_ticks(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field(ARRIVED, pa.int64())).append(pa.field(LEFT, pa.int64()))


def _all(side: Side, numbers: Words) -> Rows | None:
    return None
