"""Finds the best partners of a stream's rows in a table at rest. The table is copied once, and every micro-batch probes
it.

    table   --divided by ranges of a key--> parts: segments, zone maps                      once, when the join is made
    stream  --the best of each part, then of all parts--> a streaming DataFrame             in every micro-batch

Every task can read the whole table, so there is no state, no shuffle and no watermark. Parts that no row of a
micro-batch can match are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from dovetail.columns.batches import one_batch
from dovetail.columns.taking import take_rows
from dovetail.condition.best import Best
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Matches, Side
from dovetail.core.threads import allow_threads
from dovetail.execution.at_rest import Joining
from dovetail.execution.output import drop_last_columns, padded_batches, result_batches
from dovetail.matching.best_partners import best_partners
from dovetail.matching.sorted_part import ZoneMaps, can_match
from dovetail.planning.plan import JoinPlan
from dovetail.planning.statistics import Sample
from dovetail.spark.exchange.arrow_tasks import map_in_arrow
from dovetail.spark.exchange.packing import PACK_BYTES, Rewrite, as_planned, collected
from dovetail.spark.frames.binding import after_join
from dovetail.spark.frames.planned import FrameJoin, Planned
from dovetail.spark.frames.sampling import sample_side
from dovetail.spark.frames.schemas import carried_schema, result_fields
from dovetail.spark.session.workers import freeze_modules
from dovetail.spark.streaming.state_dir import table_directory
from dovetail.spark.streaming.static_join import StaticJoin, pieces, prepare_table, read_part
from dovetail.storage.segments import SegmentStore


@dataclass(frozen=True, slots=True)
class StaticBest:
    """What the workers need to know."""

    join: StaticJoin
    best: Best


def plan_best_of_table(asked: FrameJoin, plan: JoinPlan, best: Best) -> Planned:
    """The plan of a join of a stream on the left and a table on the right, which is sampled."""
    sample = sample_side(asked.bound.frames[Side.RIGHT], asked.bound.condition, Side.RIGHT)
    kept = f"r, {sample.rows:,} rows: read once, when the join is made; micro-batches look their rows up"
    return Planned(replace(plan, table=kept), lambda: _join_with_table(asked, plan, best, sample))


def _join_with_table(asked: FrameJoin, plan: JoinPlan, best: Best, sample: Sample) -> DataFrame:
    bound, inputs, output = asked.bound, asked.inputs, asked.output
    directory = table_directory(asked.request.state_dir, inputs[0].sparkSession)
    work = Joining(bound.condition, plan.how, output, bound.extra)
    join = StaticJoin(work, Side.LEFT, directory, plan.memory_bytes)
    join = replace(join, parts=prepare_table(bound, join, sample))
    fields = result_fields(inputs, output)
    found = map_in_arrow(bound.frames[Side.LEFT], best_prober(StaticBest(join, best)), carried_schema(fields))
    return after_join(found, bound, fields)


def best_prober(static: StaticBest) -> Rewrite:
    """A function for mapInArrow from rows of the stream to results."""

    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        join = static.join
        schema, most_bytes = join.condition.schema(Side.LEFT), min(PACK_BYTES, join.part_bytes)
        store = SegmentStore(join.directory, 0, stay_mapped=join.memory_bytes is None)
        zones = ZoneMaps(join.condition)
        for batch in pieces(collected(batches, most_bytes), most_bytes):
            yield from _results(static, store, zones, as_planned(batch, schema))
        freeze_modules()

    return probe


def _results(
    static: StaticBest, store: SegmentStore, zones: ZoneMaps, batch: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    join, work = static.join, static.join.work
    reach = zones.reach(batch)
    near = [part for part in join.parts if can_match(reach, part.zone)]
    rights = [read_part(store, part) for part in near]
    with allow_threads(1):
        if len(rights) > 1:  # the best of each part are candidates
            firsts = [best_partners(join.condition, static.best, batch, rows).found.rights for rows in rights]
            rights = [take_rows(rows, np.unique(first)) for rows, first in zip(rights, firsts, strict=True)]
        right = one_batch(rights, join.condition.schema(Side.RIGHT))
        found = best_partners(join.condition, static.best, batch, right)
    mine, theirs = drop_last_columns(batch, work.drop[0]), drop_last_columns(right, work.drop[1])
    if work.how is JoinType.INNER:
        pairs = Matches.pairs(mine, found.found.lefts, theirs, found.found.rights)
        yield from result_batches(pairs, work.schema)
    else:
        yield from padded_batches(mine, found.lefts, theirs, found.rights, work.schema)
