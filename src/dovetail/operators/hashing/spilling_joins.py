"""The hash joins that spill: XJoin, HMJ, DPHJ and RPJ.

They share their state and its tasks (spilling.py). They differ in the policy that chooses what to spill (flushing.py)
and in the task that runs while sources stall.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dovetail.core.rows import Matches, Side
from dovetail.operators.hashing.parameters import HASH_PARAMETERS
from dovetail.operators.hashing.runs import HashRun
from dovetail.operators.hashing.spilling import SpillingHash, Task
from dovetail.operators.protocol import OperatorSpec


class XJoin(SpillingHash):
    """XJoin: a symmetric hash join that spills its largest partition and joins memory with disk while sources stall.

        arriving   batch --> probe the other side's partitions in memory --> results
                         \\-> keep; when full, spill the largest partition (of one side only)
        reactive   the largest partition in memory x the other side's partition on disk
        cleanup    flush all, then disk x disk, partition by partition

    Guarantee: every matching pair exactly once. Pairs joined in memory are recognised by the residence of their rows,
    pairs of the reactive phase by the ticks at which it ran. Any budget of at least four blocks is kept.

    Urhan and Franklin, XJoin: a reactively-scheduled pipelined join operator, IEEE Data Eng. Bull. 2000; as described
    in Tao et al., RPJ, SIGMOD 2005, section 2.1.

    Deviations: batches instead of tuples. Runs are sorted by hash when they are spilled, so that disk x disk is a
    merge. In the second duplicate condition, which is printed with the index of another partition, all times of the
    row's own partition count. A partition is joined with the disk again only after new rows have arrived that it could
    match.
    """

    spec: ClassVar[OperatorSpec] = OperatorSpec(name="xjoin", parameters=HASH_PARAMETERS)
    defaults: ClassVar[dict[str, Any]] = {"flush": "largest"}

    def react(self) -> Iterator[Matches]:
        return self._react(self._next_task)

    def _next_task(self) -> Task | None:
        sizes = np.array([side.sizes for side in self._residents])
        sizes[self._reported.memory_pairs == 0] = 0  # nothing new on either side
        if not sizes.any():
            return None
        side, partition = divmod(int(np.argmax(sizes)), self._partitions)
        return self._meet_disk(Side(side), partition)


class Hmj(SpillingHash):
    """Hash-merge join: spills partitions of both sides together, and merges and joins their runs while sources stall.

        arriving   batch --> probe the other side's partitions in memory --> results
                         \\-> keep; when full, spill a pair of partitions, sorted: the k-th runs of both sides
        reactive   for each partition: runs of both sides are merged at once; equal keys of different k are results
        cleanup    flush all, then merge to the end

    Guarantee: every matching pair exactly once: rows of the k-th runs were joined in memory, rows of merged runs in the
    merge. Any budget of at least four blocks is kept.

    Mokbel, Lu and Aref, Hash-merge join: a non-blocking join algorithm for producing fast and early join results, ICDE
    2004; as described in Tao et al., RPJ, SIGMOD 2005, section 2.2.

    Deviations: batches instead of tuples. Rows are sorted by the hash of the key. The smallest runs are merged first,
    and the last merge of the cleanup writes nothing. Papers disagree on when a merge yields to arrivals: `handover`
    configures it.
    """

    spec: ClassVar[OperatorSpec] = OperatorSpec(name="hmj", parameters=HASH_PARAMETERS)
    defaults: ClassVar[dict[str, Any]] = {"flush": "adaptive"}
    paired: ClassVar[bool] = True

    def react(self) -> Iterator[Matches]:
        return self._react(self._next_task)

    def _next_task(self) -> Task | None:
        open_ = [int(j) for j in np.flatnonzero(self._reported.disk_pairs) if self._can_merge(int(j))]
        return self._merge_partitions(open_) if open_ else None


class Dphj(SpillingHash):
    """Double pipelined hash join: a symmetric hash join that spills partitions of both sides when memory is full.

        arriving   batch --> probe the other side's partitions in memory --> results
                         \\-> keep; when full, spill partitions of both sides: those spilled before, then the largest
        reactive   nothing
        cleanup    flush all, then disk x disk, partition by partition

    Guarantee: every matching pair exactly once, by the periods that rows spent in memory. Any budget of at least four
    blocks is kept.

    Ives, Florescu, Friedman, Levy and Weld, An adaptive query execution system for data integration, SIGMOD 1999,
    section 4.2.2 (incremental symmetric flush).

    Deviations: batches instead of tuples. Rows of a partition that was spilled before are kept until memory is full
    again, instead of being written at once: until then they are joined with each other.
    """

    spec: ClassVar[OperatorSpec] = OperatorSpec(name="dphj", parameters=HASH_PARAMETERS)
    paired: ClassVar[bool] = True
    defaults: ClassVar[dict[str, Any]] = {"flush": "symmetric"}

    def react(self) -> Iterator[Matches]:
        return self._react(lambda: None)


class Promise(NamedTuple):
    """The expected results and cost of a task."""

    results: float
    cost: float
    side: Side | None  # side of the partition in memory; None for disk with disk
    partition: int

    @property
    def rate(self) -> float:
        return self.results / self.cost


class Rpj(SpillingHash):
    """Rate-based progressive join: keep the rows that arrivals will match, and run the most productive task in stalls.

        arriving   batch --> probe the other side's partitions in memory --> results
                         \\-> keep; when full, spill the rows with the least likely partners          (optimal flush)
        reactive   the task with the highest output rate, expected results / expected cost, until none has any:
                       md  a partition in memory x the other side's partition on disk
                       dd  a partition on disk, both sides merged and joined
        cleanup    flush all, then dd for every partition

    Guarantee: every matching pair exactly once. Pairs of rows are skipped if they were in memory together, if an
    md-task found one in memory and the other on disk, or if their runs have been merged with each other. Given the
    arrival statistics, the flush keeps the rows with the most expected results (Lemma 1). Any budget of at least four
    blocks is kept.

    Tao, Yiu, Papadias, Hadjieleftheriou and Mamoulis, RPJ: producing fast join results on streams through rate-based
    optimization, SIGMOD 2005.

    Deviations: batches instead of tuples; time is counted in arrivals. A flush precedes the insertion of the batch that
    needs the memory. Fig. 4 loops on the rows to flush and sorts every run; Fig. 7 compares the same md-task with both
    rows; a reactive stage without a promising task waits for data. A spilled row counts the pairs with rows that were
    on disk when it arrived. Merge passes are computed from runs, and are at least one. The expected cost of a dd-task
    is its cost here, where a merge reads many pages of a run at once; in print every page is charged as random, so RPJ
    prefers md-tasks that yield less (`passes="pages"` is as printed). A dd-task can yield to arrivals between two
    merges (`handover`). The last merge of the cleanup writes nothing. Beyond the paper: bands and distances
    (operators/hashing/cell_keys.py), and load shedding with a count of lost results (`shed`). The paper's variants with
    a single kind of task (section 6.2) are `tasks="md"` and `tasks="dd"`.
    """

    spec: ClassVar[OperatorSpec] = OperatorSpec(name="rpj", parameters=HASH_PARAMETERS)
    defaults: ClassVar[dict[str, Any]] = {"flush": "optimal", "n_flush": None, "tasks": "md dd"}

    def react(self) -> Iterator[Matches]:
        return self._react(self._next_task)

    def promises(self) -> list[Promise]:
        """All tasks with expected results."""
        keys = self._keys_of_partitions()
        tasks = self._parameters.tasks.split()
        found = []
        if "md" in tasks:
            open_ = [(Side(side), int(j)) for side, j in np.argwhere(self._reported.memory_pairs)]
            found += [
                Promise(self._reported.memory_pairs[side, j] / keys[j], self._cost_of_md(side, j), side, j)
                for side, j in open_
            ]
        if "dd" in tasks:
            mergeable = [j for j in map(int, np.flatnonzero(self._reported.disk_pairs)) if self._can_merge(j)]
            found += [Promise(self._reported.disk_pairs[j] / keys[j], self._cost_of_dd(j), None, j) for j in mergeable]
        return found

    def _next_task(self) -> Task | None:
        if not (promises := self.promises()):
            return None
        return self._all_tasks() if self._parameters.handover == "all" else self._task(promises)

    def _all_tasks(self) -> Task:
        while promises := self.promises():
            yield from self._task(promises)

    def _task(self, promises: list[Promise]) -> Task:
        best = max(promises, key=lambda promise: promise.rate)
        if best.side is None:
            return self._merge_partitions([best.partition])
        return self._meet_disk(best.side, best.partition)

    def _cost_of_md(self, side: Side, partition: int) -> float:
        """The other side's runs are read once (section 5.3)."""
        return self._cost_of_reading(self._runs_of(side.other, partition))

    def _cost_of_dd(self, partition: int) -> float:
        """Every page is read and written in every pass."""
        runs = [self._runs_of(side, partition) for side in Side]
        pages = [sum(run.pages for run in of_side) for of_side in runs]
        if self._parameters.passes == "pages":  # as printed: passes by pages, each page as a random read
            return 2 * self._parameters.random_cost * sum(pages) * self._passes(max(pages))
        once = sum(map(self._cost_of_reading, runs)) + sum(pages) * self._parameters.sequential_cost
        return once * self._passes(max(map(len, runs)))

    def _cost_of_reading(self, runs: list[HashRun]) -> float:
        """One random read per run, sequential reads for its other pages."""
        pages = sum(run.pages for run in runs)
        return len(runs) * self._parameters.random_cost + (pages - len(runs)) * self._parameters.sequential_cost

    def _passes(self, many: int) -> int:
        return max(1, math.ceil(math.log(max(1, many), self._parameters.fan_in)))
