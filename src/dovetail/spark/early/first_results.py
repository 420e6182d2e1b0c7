"""The first results of a progressive join: a sample of rows, joined with the whole other side.

    larger side   --by a hash of their contents--> first rows, a small random sample
    other side    --every task joins its rows with the first rows--> results

Blocks are then written without the first rows, so no result is emitted twice. The hash of contents chooses the same
rows whenever a table is read. First rows are used only for tables that return the same rows each time. As a check, the
rows are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dovetail.columns.batches import one_batch
from dovetail.condition import Condition
from dovetail.core.rows import Side
from dovetail.errors import StateError
from dovetail.planning.statistics import Samples
from dovetail.spark.batch.tables import contents
from dovetail.spark.early.tasks import ARROW_GIVEN, GIVEN, Given, WaveWork
from dovetail.spark.exchange.packing import Rewrite, as_planned, collected, from_bytes, to_bytes
from dovetail.spark.session.workers import freeze_modules

RESULTS = 1 << 16  # expected results of the first rows
MOST_ROWS = 1 << 14
FEWEST_ROWS = 16
MOST_SHARE = 1 / 16  # of their side
HASHES = 1 << 64
LEAST_HASH = -(1 << 63)

REPEATED = {
    "DataSourceV2Relation",
    "Filter",
    "HiveTableRelation",
    "Join",
    "LocalRelation",
    "LogicalRDD",
    "LogicalRelation",
    "Project",
    "Range",
    "RebalancePartitions",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "SubqueryAlias",
    "Union",
    "View",
}
"""Spark operators that are deterministic up to order. A limit is not."""


@dataclass(frozen=True, slots=True)
class FirstResults:
    side: Side
    below: int  # rows with a smaller hash are first rows
    seed: int
    others: tuple[int, int]  # rows of each side without the first rows

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> FirstResults:
        return cls(Side(fields["side"]), fields["below"], fields["seed"], tuple(fields["others"]))

    def exclude_sampled(self, frames: tuple[DataFrame, DataFrame]) -> tuple[DataFrame, DataFrame]:
        """Both sides without their first rows."""
        left, right = (
            frames[side].where(~is_first_row(frames[side], self.below, self.seed))
            if side is self.side
            else frames[side]
            for side in Side
        )
        return left, right

    def check(self, rows: tuple[int, int]) -> None:
        """Check that the number of other rows is unchanged."""
        if rows != self.others:
            raise StateError(
                f"The tables changed during the join: {rows} rows instead of {self.others}. Results may be lost "
                f"or duplicated: start again with tables that do not change."
            )


def send_scouts(
    frames: tuple[DataFrame, DataFrame],
    condition: Condition,
    samples: Samples,
    pairs: float,
    seed: int,
    work: WaveWork,
) -> tuple[FirstResults, list[Given]] | None:
    """The first rows and their results. None if it is better to do without."""
    side = Side.LEFT if samples[0].rows >= samples[1].rows else Side.RIGHT
    rows = samples[side].rows
    share = min(MOST_SHARE, MOST_ROWS / max(1, rows), max(RESULTS / max(1.0, pairs), FEWEST_ROWS / max(1, rows)))
    if rows * share < FEWEST_ROWS or not is_repeated(frames[side]):
        return None
    below = LEAST_HASH + int(share * HASHES)
    arrived = frames[side].where(is_first_row(frames[side], below, seed)).toArrow()
    batch = as_planned(one_batch(arrived, arrived.schema), condition.schema(side))
    meet = _meeting(side, to_bytes(batch).to_pybytes(), condition.schema(side.other), work)
    given = [Given.from_row(row) for row in frames[side.other].mapInArrow(meet, GIVEN).collect()]
    left, right = (sample.rows for sample in samples)
    others = (left - batch.num_rows, right) if side is Side.LEFT else (left, right - batch.num_rows)
    return FirstResults(side, below, seed, others), given


def is_repeated(frame: DataFrame) -> bool:
    """Whether it certainly returns the same rows each time it is read. A Connect session cannot tell."""
    try:
        plan = frame._jdf.queryExecution().analyzed()
    except (AttributeError, PySparkException):
        return False
    nodes = [plan]
    for node in nodes:
        if node.nodeName() not in REPEATED:
            return False
        children = node.children()
        nodes += [children.apply(i) for i in range(children.size())]
    return bool(plan.deterministic())


def is_first_row(frame: DataFrame, below: int, seed: int) -> Column:
    return F.xxhash64(F.lit(seed), *contents(frame)) < F.lit(below)


def _meeting(side: Side, first_rows: bytes, schema: pa.Schema, work: WaveWork) -> Rewrite:
    """A function for mapInArrow that joins the rows of a task with the first rows."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Side, pa.RecordBatch]]:
        yield side, from_bytes(first_rows)
        for batch in collected(batches):
            yield side.other, as_planned(batch, schema)

    def meet(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([work.meet(side, rows(batches))], ARROW_GIVEN)
        freeze_modules()

    return meet
