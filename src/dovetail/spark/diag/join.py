"""Diag-Join of Parquet files on Spark: slices along the diagonal, without a shuffle.

    survey     keys only, a task for each slice --> is every row of RN resolved, which keys of R1 repeat
    hits       a task for each slice reads its rows of RN and the rows of R1 beside them --> results
    the rest   unresolved rows of RN, if any  --ordinary join with R1-->  results

Tasks get only the positions of the rows to read; hits are never shuffled. The survey removes repeated keys of R1 from
the slices, and they are joined with the rest. If there are many, everything is joined by an ordinary join. If the join
type tracks which rows of R1 have a partner, the survey records one bit for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from dovetail.columns.taking import take_rows
from dovetail.condition import Condition
from dovetail.condition.graph import Graph
from dovetail.condition.mirror import mirrored_expression
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.diag.choice import Wish, choose_diagonal, plan_diagonal
from dovetail.diag.ring import Repeats
from dovetail.diag.slices import Range, Sliced, SliceJoin, Survey, cut_slices
from dovetail.errors import PlanError
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.planning.planner import InputFacts, plan_join
from dovetail.request import Request
from dovetail.sources.parquet_files import ParquetRows
from dovetail.spark.batch.tables import Look, joined_tables, route, tasks_for
from dovetail.spark.diag.clusteredness import measured_by
from dovetail.spark.exchange.arrow_tasks import Part, in_tasks
from dovetail.spark.exchange.labels import repartition_by_id
from dovetail.spark.frames.binding import Bound
from dovetail.spark.frames.file_rows import MOST_FILES, are_reached
from dovetail.spark.frames.parquet_frames import NotPlainError, plain_read
from dovetail.spark.frames.planned import Inputs
from dovetail.spark.frames.renaming import renamed
from dovetail.spark.frames.schemas import carried_schema, result_fields
from dovetail.spark.session.settings import shuffle_partitions
from dovetail.spark.session.workers import freeze_modules
from dovetail.storage.hash_table import Hashes

LEAST_ROWS = 1 << 17  # of the larger side: smaller joins are fast, and not examined
MOST_REPEATED = 1 << 16  # number of keys sent to tasks
SLICE_BYTES = 1 << 28  # of RN
MOST_BYTES = 1 << 32  # per task without a limit: text offsets have 32 bits
SLICES_PER_CORE = 2
NOT_REACHED = "workers do not find the same files at these paths"
WHY = "slices of {} with the rows of {} at the same relative positions, read by the tasks; mishits by hash at the end"

SURVEYED = "part int, slice int, left_over bigint, low bigint, bits binary, hashes binary"
ARROW_SURVEYED = pa.schema(
    [
        ("part", pa.int32()),
        ("slice", pa.int32()),
        ("left_over", pa.int64()),
        ("low", pa.int64()),
        ("bits", pa.binary()),
        ("hashes", pa.binary()),
    ]
)

Scans = tuple[ParquetRows, ParquetRows]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DiagonalPlan:
    plan: JoinPlan
    bound: Bound  # its condition includes the filters of the DataFrames
    scans: Scans
    slices: tuple[Range, ...]


class FrameDiagonals:
    """Plans Diag-Joins of DataFrames. A survey of the keys confirms or rejects what the sample has suggested."""

    def __init__(self, inputs: Inputs, bound: Bound, output: pa.Schema, request: Request) -> None:
        self._inputs, self._bound, self._output, self._request = inputs, bound, output, request
        self.join: DiagonalTables | None = None  # the planned join

    def plan(
        self, condition: Condition, how: str, memory_bytes: int | None, parameters: Mapping[str, Any], *, asked: bool
    ) -> tuple[JoinPlan | None, tuple[str, ...]]:
        make = _plan_requested if asked else _plan_if_cheaper
        found, why_not = make(self._bound, self._inputs, how, memory_bytes, self._request)
        if found is None:
            return None, why_not
        if not found.slices:
            return None, ("not along the diagonal: a side is empty",)
        join = DiagonalTables(self._inputs, found, self._output, self._request)
        if not join.is_one_to_many:
            return None, ("not along the diagonal: keys repeat on both sides",)
        if not asked and not join.is_worthwhile:
            return None, ("not along the diagonal: most rows are mishits",)
        self.join = join
        return found.plan, ()


def _plan_requested(
    bound: Bound, inputs: Inputs, how: str, memory_bytes: int | None, request: Request
) -> tuple[DiagonalPlan, tuple[str, ...]]:
    """The plan of a requested Diag-Join. Raises an error if it is not possible."""
    bound, scans = wanted_scans(bound, inputs, how)
    spark = inputs[0].sparkSession
    if not are_reached(spark, scans):
        raise PlanError(
            f"algorithm='diag' on Spark needs files that the driver and all workers share: {NOT_REACHED}. Put "
            f"them where all mount them under the same path, or into a store, or use algorithm='auto'."
        )
    wish = Wish.from_options(**request.parameters, **request.diagonal)
    look = measured_by(spark, _slices(bound, request))
    plan = plan_diagonal(_looked_up(bound), how, scans, wish, _for_window(memory_bytes), measure=look)
    return _in_slices(plan, bound, scans, memory_bytes, request), ()


def wanted_scans(bound: Bound, inputs: Inputs, how: str) -> tuple[Bound, Scans]:
    """The rows of both sides by position. Raises an error that says why there are no positions."""
    try:
        return _scans(bound, inputs, how)
    except NotPlainError as reason:
        raise PlanError(
            f"algorithm='diag' on Spark needs plain reads of Parquet files on both sides: {reason}. "
            "Read the files, select columns and filter, or use algorithm='auto'."
        ) from None


def _plan_if_cheaper(
    bound: Bound, inputs: Inputs, how: str, memory_bytes: int | None, request: Request
) -> tuple[DiagonalPlan | None, tuple[str, ...]]:
    """The plan, if a look at the files shows that it is cheaper; else None, and the reasons."""
    if not bound.condition.equalities or not request.sample:
        return None, ()
    try:
        bound, scans = _scans(bound, inputs, how, MOST_FILES)
    except NotPlainError:
        return None, ()
    if max(scan.rows for scan in scans) < LEAST_ROWS:
        return None, ()
    spark = inputs[0].sparkSession
    if not are_reached(spark, scans):
        return None, (f"not along the diagonal: {NOT_REACHED}",)
    look = measured_by(spark, _slices(bound, request))
    memory = _for_window(memory_bytes)
    plan, advice = choose_diagonal(_looked_up(bound), how, scans, memory, notes=False, measure=look)
    if plan is None:
        return None, advice
    return _in_slices(plan, bound, scans, memory_bytes, request), ()


def may_go_along_diagonal(bound: Bound, inputs: Inputs, request: Request) -> bool:
    """Whether a Diag-Join may be chosen automatically for such a join. Reads only footers of files."""
    if not bound.condition.equalities or not request.sample:
        return False
    try:
        _, scans = _scans(bound, inputs, request.how, MOST_FILES)
    except NotPlainError:
        return False
    return max(scan.rows for scan in scans) >= LEAST_ROWS


def _scans(bound: Bound, inputs: Inputs, how: str, most_files: int | None = None) -> tuple[Bound, Scans]:
    """All rows of the files by position. Rows that the DataFrames filter out are excluded by the condition."""
    if bound.after or any(bound.extra):
        raise NotPlainError("a part of the condition is computed by Spark")
    found, filters = [], []
    for side in Side:
        try:
            rows, filtered = plain_read(inputs[side], most_files)
            if filtered and side in JoinType.read(how).preserved:
                raise NotPlainError("it is filtered, and the join keeps its rows whether they match or not")
        except NotPlainError as reason:
            raise NotPlainError(f"of the {side.name.lower()} side, {reason}") from None
        found.append(rows)
        own = filtered if side is Side.LEFT else tuple(mirrored_expression(part) for part in filtered)
        filters.append((*bound.condition.filters[side], *own))
    condition = replace(bound.condition, filters=(filters[0], filters[1]))
    return replace(bound, condition=condition), (found[0], found[1])


def _looked_up(bound: Bound) -> Condition:
    """The condition of the lookup, without filters: filtered-out rows have positions, so the lookup finds them too."""
    return replace(bound.condition, filters=((), ()))


def _for_window(memory_bytes: int | None) -> int:
    """The memory of the window. A step has nine tables where the ring has six, and copies them for the next step."""
    return (MOST_BYTES if memory_bytes is None else memory_bytes) // 3


def _slices(bound: Bound, request: Request) -> int:
    """The minimum number of slices."""
    return request.cells or SLICES_PER_CORE * bound.frames[0].sparkSession.sparkContext.defaultParallelism


def _in_slices(plan: JoinPlan, bound: Bound, scans: Scans, memory_bytes: int | None, request: Request) -> DiagonalPlan:
    assert plan.diagonal is not None
    many = plan.diagonal.one.other
    by_size = -(-scans[many].total_bytes() // SLICE_BYTES)
    cores = bound.frames[0].sparkSession.sparkContext.defaultParallelism
    wanted = request.cells or -(-max(_slices(bound, request), by_size) // cores) * cores  # whole rounds of tasks
    slices = tuple(cut_slices(scans[many], wanted)) if all(scan.rows for scan in scans) else ()
    router = Choice("slices", WHY.format(many.alias, many.other.alias))
    rows = (scans[0].rows, scans[1].rows)
    plan = replace(
        plan,
        graph=Graph.of(bound.condition),
        router=router,
        cells=len(slices),
        tasks=len(slices),
        rows=rows,
        memory_bytes=memory_bytes,
    )
    return DiagonalPlan(plan, bound, scans, slices)


class DiagonalTables:
    """One Diag-Join. `hits` and `rest` together are the result."""

    def __init__(self, inputs: Inputs, found: DiagonalPlan, output: pa.Schema, request: Request) -> None:
        self._spark = inputs[0].sparkSession
        self._inputs, self._bound, self._request = inputs, found.bound, request
        self._fields = _known_whole(result_fields(inputs, output), found.scans, found.plan.how)
        sliced = Sliced(found.plan, found.scans, output, found.slices, np.empty(0, np.int64))
        self.left_over, repeated, self._partnered = survey(self._spark, sliced)
        self.sliced = replace(sliced, repeated=repeated)

    @property
    def is_one_to_many(self) -> bool:
        return len(self.sliced.repeated) <= MOST_REPEATED

    @property
    def is_worthwhile(self) -> bool:
        """Whether most rows are resolved in their slice, as the sample suggested."""
        return 2 * int(self.left_over.sum()) <= self.sliced.scans[self.sliced.many].rows

    @property
    def parts(self) -> int:
        """The tasks that `hits` runs in."""
        return len(self.sliced.slices)

    @property
    def schema(self) -> StructType:
        return carried_schema(self._fields)

    def frame(self) -> DataFrame:
        found = in_tasks(self._spark, self.parts, self.hits(), self.schema)
        for more in self.rest():
            found = found.unionAll(more)
        return found

    def hits(self) -> Part:
        """The results of a slice's task."""
        sliced = self.sliced
        if sliced.plan.how.only is sliced.one:  # only rows of R1, which the survey has identified
            if sliced.plan.how is JoinType.LEFT_SEMI:
                return _ones(sliced, self._partnered, sliced.output.names)
            return _nothing if self._has_rest else _ones(sliced, ~self._partnered, sliced.output.names)
        return _hits(sliced)

    @property
    def _has_rest(self) -> bool:
        return bool(self.left_over.any()) or len(self.sliced.repeated) > 0

    def rest(self) -> Iterator[DataFrame]:
        """Unresolved rows, joined by an ordinary join."""
        sliced, how = self.sliced, self.sliced.plan.how
        one, many = sliced.one, sliced.many
        if not self._has_rest:
            if one in how.padded and not self._partnered.all():
                yield self._alone(self._lone_ones())
            return
        affected = range(len(sliced.slices)) if len(sliced.repeated) else np.flatnonzero(self.left_over).tolist()
        left_over = _left_over(sliced, list(affected), self._bound.frames[many].columns)
        many_rows = in_tasks(self._spark, len(affected), left_over, self._side(many))
        if how.only is one:
            yield self._ordinary(how, {one: self._lone_ones(), many: many_rows})
            return
        of_many = how if how.only is many else _preserving(many) if sliced.asks(many) else JoinType.INNER
        yield self._ordinary(of_many, {one: self._bound.frames[one], many: many_rows})
        if sliced.asks(one):
            frames = {one: self._lone_ones(), many: many_rows}
            if one is Side.RIGHT:
                yield self._ordinary(JoinType.RIGHT_ANTI, frames)
            else:
                yield self._alone(self._ordinary(JoinType.LEFT_ANTI, frames))

    def _lone_ones(self) -> DataFrame:
        """Rows of R1 without a partner, as far as the survey knows."""
        rows = _ones(self.sliced, ~self._partnered, self._bound.frames[self.sliced.one].columns)
        return in_tasks(self._spark, len(self.sliced.slices), rows, self._side(self.sliced.one))

    def _ordinary(self, how: JoinType, frames: dict[Side, DataFrame]) -> DataFrame:
        sliced = self.sliced
        bound = replace(self._bound, frames=(frames[Side.LEFT], frames[Side.RIGHT]))
        sizes = {sliced.one: sliced.scans[sliced.one].rows, sliced.many: int(self.left_over.sum())}
        cell = plan_join(
            bound.condition,
            JoinType.RIGHT if how is JoinType.RIGHT_ANTI else how,
            InputFacts(on_spark=True),
            memory_bytes=sliced.plan.memory_bytes,
        )
        plan = replace(cell, how=how, rows=(sizes[Side.LEFT], sizes[Side.RIGHT]), pairs=float(sizes[sliced.many]))
        tasks = self._request.cells or tasks_for(bound, plan, shuffle_partitions(self._inputs[0]))
        output = sliced.output
        if how is JoinType.LEFT_ANTI and sliced.plan.how is not JoinType.LEFT_ANTI:
            output = self._bound.visible(Side.LEFT)
        return joined_tables(self._inputs, bound, route(plan, Look(None, tasks)), output)

    def _alone(self, ones: DataFrame) -> DataFrame:
        """Rows of R1 padded with nulls."""
        width = len(self._bound.frames[Side.LEFT].columns)
        own = self._fields[:width] if self.sliced.one is Side.LEFT else self._fields[width:]
        named = renamed(ones, [field.name for field in own])
        columns = [
            F.col(f"`{field.name.replace('`', '``')}`")
            if field in own
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in self._fields
        ]
        return named.select(*columns)

    def _side(self, side: Side) -> StructType:
        return carried_schema(self._bound.frames[side].schema.fields)


def _known_whole(fields: list[StructField], scans: Scans, how: JoinType) -> list[StructField]:
    """The fields, marked as not nullable if neither the files nor the join type have nulls: Spark reads them faster."""
    known = [whole and side.other not in how.padded for side in Side for whole in scans[side].without_nulls]
    return [
        StructField(f.name, f.dataType, f.nullable and not whole, f.metadata)
        for f, whole in zip(fields, known, strict=False)
    ]


def _preserving(side: Side) -> JoinType:
    return JoinType.LEFT if side is Side.LEFT else JoinType.RIGHT


# In the tasks.


def _hits(sliced: Sliced) -> Part:
    return lambda number: SliceJoin(sliced, sliced.slices[number]).results()


def _nothing(number: int) -> Iterator[pa.RecordBatch]:
    return iter(())


def _left_over(sliced: Sliced, affected: list[int], names: list[str]) -> Part:
    def rows(number: int) -> Iterator[pa.RecordBatch]:
        for batch in SliceJoin(sliced, sliced.slices[affected[number]]).left_over():
            yield batch.rename_columns(names)

    return rows


def _ones(sliced: Sliced, chosen: Flags, names: list[str]) -> Part:
    """Some rows of R1, each from the slice that owns it, with columns of these names."""
    bits = np.packbits(chosen)

    def rows(number: int) -> Iterator[pa.RecordBatch]:
        owned = sliced.owned_rows(sliced.slices[number])
        wanted = np.unpackbits(bits)[: sliced.scans[sliced.one].rows].view(np.bool_)
        if wanted[owned.start : owned.stop].any():
            for position, batch in sliced.scans[sliced.one].places(1 << 16, None, *owned):
                here = np.flatnonzero(wanted[position : position + batch.num_rows])
                if len(here):
                    yield take_rows(batch, here).rename_columns(names)

    return rows


# The survey.


def survey(spark: SparkSession, sliced: Sliced) -> tuple[NDArray[np.int64], Hashes, Flags]:
    """The unresolved rows of each slice, the repeated keys of R1, and which rows of R1 are known to have a partner."""
    ones = sliced.scans[sliced.one].rows
    parts = max(1, min(len(sliced.slices), ones >> 19))
    looked = in_tasks(spark, len(sliced.slices), _surveyor(sliced, parts), SURVEYED)
    found = repartition_by_id(looked, parts, "part").mapInArrow(_find_repeats, SURVEYED).collect()
    left_over = np.zeros(len(sliced.slices), np.int64)
    repeated = [np.empty(0, np.int64)]
    partnered = np.zeros(ones if sliced.asks(sliced.one) else 0, np.bool_)
    for row in found:
        if row.hashes is not None:
            repeated.append(np.frombuffer(row.hashes, np.int64))
            continue
        left_over[row.slice] = row.left_over
        if len(partnered):
            bits = np.unpackbits(np.frombuffer(row.bits, np.uint8)).view(np.bool_)[: ones - row.low]
            partnered[row.low : row.low + len(bits)] |= bits
    return left_over, np.sort(np.concatenate(repeated)), partnered


def _surveyor(sliced: Sliced, parts: int) -> Part:
    def look(number: int) -> Iterator[pa.RecordBatch]:
        found = SliceJoin(sliced, sliced.slices[number]).survey()
        of = (found.hashes & 0x7FFFFFFF) % parts
        rows: list[dict[str, Any]] = [
            {"part": part, "slice": number, "hashes": found.hashes[of == part].tobytes()} for part in range(parts)
        ]
        rows.append(_survey_row(number, found, parts))
        yield pa.RecordBatch.from_pylist(rows, ARROW_SURVEYED)

    return look


def _survey_row(number: int, found: Survey, parts: int) -> dict[str, Any]:
    return {
        "part": number % parts,
        "slice": number,
        "left_over": found.left_over,
        "low": found.low,
        "bits": found.partnered.tobytes(),
    }


def _find_repeats(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Counts are passed on; of the hashes of one part, only repeated ones."""
    hashes = [np.empty(0, np.int64)]
    for batch in batches:
        yield batch.filter(batch.column("hashes").is_null())
        hashes += [np.frombuffer(some.as_buffer(), np.int64) for some in batch.column("hashes").drop_null()]
    together = np.concatenate(hashes)
    again = Repeats(len(together)).note(together, 0)
    if len(again):
        again = again[: MOST_REPEATED + 1]  # more than that are too many anyway
        yield pa.RecordBatch.from_pylist([{"hashes": again.tobytes()}], ARROW_SURVEYED)
    freeze_modules()
