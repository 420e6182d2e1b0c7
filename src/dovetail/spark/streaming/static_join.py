"""Joins a stream with a table at rest. The table is sorted once, and every micro-batch probes it.

    table   --divided by ranges of a key--> parts: rows and orders as segments, zone maps   once, when the join is made
    stream  --probe each part that can match--> a streaming DataFrame                       in every micro-batch

Every task can read the whole table, so it can tell which of its rows have a partner: there is no state, no shuffle and
no watermark. Segments are memory-mapped. The workers of a machine share their pages, and keep them mapped between
micro-batches. If rows cannot be kept sorted for probes, one part at a time is loaded into memory.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.columns.batches import slices
from dovetail.columns.taking import take_rows
from dovetail.condition import Condition, keyed_rows
from dovetail.condition.expression import Expression, type_of
from dovetail.condition.mirror import mirrored
from dovetail.core.codes import Words, is_fixed, order_codes
from dovetail.core.rows import Matches, Rows, Side
from dovetail.errors import StateError
from dovetail.execution.at_rest import Joining
from dovetail.execution.out_of_core import chunk_size
from dovetail.execution.output import fitting_rows, result_batches
from dovetail.kernels.taking import mark
from dovetail.matching.sorted_part import PartBuilder, SortedPart, Zone, ZoneMaps, can_match
from dovetail.planning.kernel_plans import SPARK
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts
from dovetail.planning.statistics import Sample
from dovetail.routing.routers import Spread, Visits
from dovetail.spark.batch.spark_join import by_spark, join_by_spark
from dovetail.spark.batch.tables import MOST_TASKS, in_fixed_order
from dovetail.spark.exchange.arrow_tasks import map_in_arrow
from dovetail.spark.exchange.labels import repartition_by_id
from dovetail.spark.exchange.packing import PACK_BYTES, PACKED, Rewrite, as_planned, collected, packer, unpack_rows
from dovetail.spark.frames.binding import Bound, after_join
from dovetail.spark.frames.planned import FrameJoin, Planned
from dovetail.spark.frames.sampling import sample_side
from dovetail.spark.frames.schemas import carried_schema, result_fields
from dovetail.spark.session.workers import freeze_modules
from dovetail.spark.streaming.state_dir import table_directory
from dovetail.storage.blocks import RECOVERY, Block, BlockStore
from dovetail.storage.open_store import Place
from dovetail.storage.segments import SegmentStore

PART_ROWS = 1 << 20
PART_BYTES = 1 << 26
MOST_PAIRS, FEWEST_PAIRS = 1 << 20, 1 << 12  # found at a time
PAIRS_SHARE = 64  # at most one pair per 64 bytes of the budget at a time


@dataclass(frozen=True, slots=True)
class TablePart:
    """Some rows of the table, as segments."""

    rows: Block
    orders: tuple[Block, ...]  # one for every two keys that probes can use; none if they sort anew
    zone: Zone | None


@dataclass(frozen=True, slots=True)
class StaticJoin:
    """What the workers need to know."""

    work: Joining
    stream: Side
    directory: Place
    memory_bytes: int | None
    parts: tuple[TablePart, ...] = ()

    @property
    def condition(self) -> Condition:
        """The condition, with rows of the stream on its left and rows of the table on its right."""
        return self.work.condition if self.stream is Side.LEFT else mirrored(self.work.condition)

    @property
    def part_bytes(self) -> int:
        return min(PART_BYTES, chunk_size(self.memory_bytes))

    @property
    def most_pairs(self) -> int:
        if self.memory_bytes is None:
            return MOST_PAIRS
        return min(MOST_PAIRS, max(FEWEST_PAIRS, self.memory_bytes // PAIRS_SHARE))


def plan_with_table(asked: FrameJoin) -> Planned:
    """The plan of a join of a stream and a table at rest, which is sampled."""
    table = Side.RIGHT if asked.inputs[0].isStreaming else Side.LEFT
    plan = asked.plan(InputFacts("stream", on_spark=True, table=table))
    bound = asked.bound
    if asked.needs_spark(plan) or (bound.after and not bound.condition.finds_candidates):
        plan = by_spark(asked, plan)
    if plan.operator.name == SPARK:
        return Planned(plan, lambda: join_by_spark(asked, plan))
    sample = sample_side(bound.frames[table], bound.condition, table)
    kept = f"{table.alias}, {sample.rows:,} rows: read and sorted once, when the join is made; micro-batches probe it"
    return Planned(replace(plan, table=kept), lambda: _join_with_table(asked, plan, sample))


def _join_with_table(asked: FrameJoin, plan: JoinPlan, sample: Sample) -> DataFrame:
    bound, inputs, output = asked.bound, asked.inputs, asked.output
    stream = Side.LEFT if inputs[0].isStreaming else Side.RIGHT
    directory = table_directory(asked.request.state_dir, inputs[0].sparkSession)
    join = StaticJoin(Joining(bound.condition, plan.how, output, bound.extra), stream, directory, plan.memory_bytes)
    join = replace(join, parts=prepare_table(bound, join, sample))
    fields = result_fields(inputs, output)
    joined = map_in_arrow(bound.frames[stream], table_prober(join), carried_schema(fields))
    return after_join(joined, bound, fields)


# The table, read once.


class Ranges:
    """Divides a table by ranges of a key, or round-robin if no key has codes. Rows that cannot match are left out."""

    def __init__(self, join: StaticJoin, sample: Sample, cells: int) -> None:
        self._condition = join.condition
        strategy = self._condition.strategy
        self._keys = [pair[Side.RIGHT] for pair in (*strategy.equal_keys, *strategy.ordered_keys)]
        self._by = next((i for i, key in enumerate(self._keys) if is_fixed(type_of(key))), None)
        self._cuts: Words = np.empty(0, np.int64)
        self.cells = cells
        if self._by is not None:
            codes = np.sort(self._codes(sample.batch, self._keys[self._by]))
            self._cuts = np.unique(codes[np.arange(1, cells) * len(codes) // cells]) if len(codes) else self._cuts
            self.cells = len(self._cuts) + 1

    @property
    def needs_spread(self) -> bool:
        return self._by is None and self.cells > 1

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        rows, columns = keyed_rows(self._condition, Side.RIGHT, batch, self._keys)
        numbers: Rows = np.arange(batch.num_rows) if rows is None else rows
        if self._by is None:
            cells = spread[numbers] % self.cells
        else:
            cells = np.searchsorted(self._cuts, order_codes(columns[self._by]).values, side="right")
        return Visits(numbers, cells.astype(np.int32))

    def _codes(self, batch: pa.RecordBatch, key: Expression) -> Words:
        _, (column,) = keyed_rows(self._condition, Side.RIGHT, batch, [key])
        return order_codes(column).values


def prepare_table(bound: Bound, join: StaticJoin, sample: Sample) -> tuple[TablePart, ...]:
    """Read the table, sort it and write it as segments."""
    side = join.stream.other
    size = max(sample.rows / PART_ROWS, sample.rows * bound.row_bytes(side) / join.part_bytes)
    ranges = Ranges(join, sample, min(MOST_TASKS, max(1, math.ceil(size))))
    frame = in_fixed_order(bound.frames[side]) if ranges.needs_spread else bound.frames[side]
    packed = frame.mapInArrow(packer(side, ranges, bound.condition.schema(side)), PACKED)
    gathered = repartition_by_id(packed, ranges.cells, F.col("cell"))
    return tuple(pickle.loads(row.part) for row in gathered.mapInArrow(part_writer(join), "part binary").collect())


def part_writer(join: StaticJoin) -> Rewrite:
    """A function for mapInArrow that writes packed rows of the table as parts, and returns their descriptions."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        condition, store = join.condition, BlockStore(join.directory)
        builder, zones = PartBuilder(condition), ZoneMaps(condition)
        rows = (batch for _, _, batch in unpack_rows(batches))
        for batch in pieces(collected(rows, join.part_bytes, PART_ROWS), join.part_bytes):
            part = _write_part(batch, store, builder, zones)
            yield pa.RecordBatch.from_pydict({"part": [pickle.dumps(part)]})
        freeze_modules()

    return write


def pieces(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows, with large batches divided."""
    for batch in batches:
        yield from slices(batch, fitting_rows(batch, most_bytes=most_bytes))


def read_part(store: SegmentStore, part: TablePart) -> pa.RecordBatch:
    """The rows of a part."""
    with _explained():
        return store.read(part.rows)


@contextmanager
def _explained() -> Iterator[None]:
    """Raise errors about missing or damaged segments with advice."""
    try:
        yield
    except StateError as error:
        raise StateError(
            f"a part of the table that is joined with the stream: {str(error).removesuffix(RECOVERY)}"
            "Stop the query, call dovetail.join again, which reads the table anew, and continue from the checkpoint."
        ) from error


def _write_part(batch: pa.RecordBatch, store: BlockStore, builder: PartBuilder, zones: ZoneMaps) -> TablePart:
    order = builder.row_order(batch)
    batch = batch if order is None else take_rows(batch, order)
    sorted_parts = [builder.keep(batch, way=way) for way in range(builder.ways)]
    orders = tuple(store.write(part.orders, "orders") for part in sorted_parts)
    return TablePart(store.write(batch, "rows"), orders, zones.zone(batch))


# The stream, in every micro-batch.


def table_prober(join: StaticJoin) -> Rewrite:
    """A function for mapInArrow from rows of the stream to results."""

    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = _LoadedTable(join)
        schema = join.work.condition.schema(join.stream)
        most_bytes = min(PACK_BYTES, join.part_bytes)
        for batch in pieces(collected(batches, most_bytes), most_bytes):
            yield from table.probe(as_planned(batch, schema))
        freeze_modules()

    return probe


class _LoadedTable:
    """The table in a worker."""

    def __init__(self, join: StaticJoin) -> None:
        self._join = join
        self._builder, self._zones = PartBuilder(join.condition), ZoneMaps(join.condition)
        self._store = SegmentStore(join.directory, 0, stay_mapped=join.memory_bytes is None)

    def probe(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The results of rows of the stream."""
        join, work = self._join, self._join.work
        partnered = np.zeros(batch.num_rows, np.bool_)
        probes, reach = self._builder.probing(batch), self._zones.reach(batch)
        for part in join.parts:
            if not can_match(reach, part.zone):
                continue
            kept = self._load(part, batch)
            matcher = probes.match(kept)
            if not work.how.emits_pairs:
                partnered |= matcher.partnered(Side.LEFT)
                continue
            for rows, partners in matcher.pairs(join.most_pairs):
                if work.how.tracked:
                    mark(partnered, rows)
                pairs = Matches.oriented(join.stream, batch, rows, kept.batch, partners)
                yield from result_batches(pairs, work.schema, drop=work.drop)
        yield from work.leave(join.stream, batch, partnered)

    def _load(self, part: TablePart, probes: pa.RecordBatch) -> SortedPart:
        """Load a part. If rows are sorted in several ways, in the order that suits the probes."""
        batch = read_part(self._store, part)
        if not part.orders:
            return self._builder.keep(batch)
        way = self._builder.best_way(batch, probes)
        with _explained():
            orders = self._store.read(part.orders[way])
        return self._builder.again(batch, orders, way)
