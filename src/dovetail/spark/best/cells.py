"""Best partners in cells: each left row is in one cell, together with all of its partners.

So cells are independent of each other. If the right side of a cell exceeds the budget, it is processed in chunks. Of
each chunk, the rows are kept that are among the best of some left row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from dovetail.columns.batches import one_batch
from dovetail.columns.taking import take_rows
from dovetail.condition import Condition
from dovetail.condition.best import Best
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Matches, Side
from dovetail.core.threads import allow_threads
from dovetail.execution.at_rest import Batches, Flags
from dovetail.execution.output import drop_last_columns, padded_batches, result_batches
from dovetail.matching.best_partners import Partners, best_partners
from dovetail.planning.plan import JoinPlan
from dovetail.spark.batch.cell import cells_at_rest
from dovetail.spark.batch.tables import in_cells, look_at, route
from dovetail.spark.frames.binding import after_join
from dovetail.spark.frames.planned import FrameJoin, Planned
from dovetail.spark.frames.schemas import carried_schema, result_fields

LISTING = ("lists", "extremes")
"""Kernels that enumerate pairs."""


def plan_best_cells(asked: FrameJoin, plan: JoinPlan, best: Best) -> Planned:
    """The plan, from samples of both sides."""
    plan, look = look_at(asked.bound, plan, asked.request, listed=plan.operator.name in LISTING)
    routed = route(replace(plan, how=JoinType.LEFT), look)  # each left row is in only one cell
    routed = replace(routed, plan=replace(routed.plan, how=plan.how), first=Side.RIGHT)
    fields = result_fields(asked.inputs, asked.output)

    cell = _BestCell(asked.bound.condition, best, plan.how, asked.output, asked.bound.extra)
    cells = cells_at_rest(cell.another, routed.first, plan.memory_bytes)

    def frame() -> DataFrame:
        return after_join(in_cells(asked.bound, routed, cells, carried_schema(fields)), asked.bound, fields)

    return Planned(routed.plan, frame)


class _Met(NamedTuple):
    """A chunk of the right side, and which of its rows are among the best of left rows. None: any of them may be."""

    partners: Partners | None
    right: pa.RecordBatch

    @property
    def of_the_best(self) -> _Met:
        if self.partners is None:
            return self
        return _Met(None, take_rows(self.right, np.unique(self.partners.found.rights)))


@dataclass(slots=True)
class _BestCell:
    """The work in a cell: a chunk of the left side is joined with the whole right side, and is then complete."""

    condition: Condition
    best: Best
    how: JoinType
    schema: pa.Schema
    drop: tuple[int, int]
    met: list[_Met] = field(default_factory=list)

    def another(self, label: int) -> _BestCell:
        """The same work for a new cell."""
        return replace(self, met=[])

    def with_condition(self, condition: Condition) -> _BestCell:
        return replace(self, condition=condition, met=[])

    def meet(self, batches: Batches, partnered: tuple[Flags, Flags]) -> Iterator[pa.RecordBatch]:
        self.met.append(_Met(self._partners(*batches), batches[1]))
        if len(self.met) > 1:
            self.met = [met.of_the_best for met in self.met]
        return iter(())

    def leave(self, side: Side, batch: pa.RecordBatch, partnered: Flags) -> Iterator[pa.RecordBatch]:
        if side is Side.RIGHT:
            return
        met, self.met = self.met, []
        if len(met) == 1 and met[0].partners is not None:
            found, right = met[0].partners, met[0].right
        else:
            right = one_batch([one.right for one in met], self.condition.schema(Side.RIGHT))
            found = self._partners(batch, right)
        mine, theirs = drop_last_columns(batch, self.drop[0]), drop_last_columns(right, self.drop[1])
        if self.how is JoinType.INNER:
            pairs = Matches.pairs(mine, found.found.lefts, theirs, found.found.rights)
            yield from result_batches(pairs, self.schema)
        else:
            yield from padded_batches(mine, found.lefts, theirs, found.rights, self.schema)

    def _partners(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Partners:
        with allow_threads(1):
            return best_partners(self.condition, self.best, left, right)
