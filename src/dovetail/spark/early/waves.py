"""Early results from tables at rest: small jobs, the most productive first, with an estimate after each.

    first     a few rows with all their matches, immediately (first_results.py)
    blocks    all other rows, written once to files, and which cells read them (blocks.py)
    waves     a few cells, then more at a time --> their results, from files --> steps with an estimate

A wave is a Spark job over some cells, drawn at random with probabilities proportional to the results expected from a
sample. So results come early, and the bounds of the estimate hold (estimation/weighted_sample.py). Cells in which a
side has no rows are skipped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from dovetail.aggregates import partial_columns
from dovetail.aggregates.columns import columns_of
from dovetail.columns.batches import empty_batch
from dovetail.condition import text_of
from dovetail.condition.select import Aggregate, parse_aggregates
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Estimate
from dovetail.core.rows import Phase, Side
from dovetail.errors import PlanError
from dovetail.estimation.weighted_sample import WeightedSample
from dovetail.execution.at_rest import Aggregating, Joining, Work
from dovetail.execution.in_process import Step
from dovetail.execution.out_of_core import chunk_size
from dovetail.execution.output import output_schema
from dovetail.execution.stop_rule import Until
from dovetail.options import Where
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import DIAG, InputFacts, plan_join, with_estimate
from dovetail.planning.statistics import SAMPLE, Samples, estimated_pairs
from dovetail.request import Request
from dovetail.routing import Task, choose_router, expected_pairs
from dovetail.routing.routers import Router
from dovetail.spark.batch.tables import in_fixed_order
from dovetail.spark.early.blocks import write_blocks
from dovetail.spark.early.diagonal import DiagonalWaves, plan_early_diagonal, progress_here, runs_in_tasks
from dovetail.spark.early.files import BlockPages, WaveFiles, new_directory
from dovetail.spark.early.first_results import FirstResults, send_scouts
from dovetail.spark.early.log import Drawn, WaveLog
from dovetail.spark.early.tasks import ARROW_GIVEN, GIVEN, Given, WaveWork, next_size
from dovetail.spark.exchange.labels import repartition_by_id
from dovetail.spark.exchange.packing import Rewrite
from dovetail.spark.frames.binding import Bound, bind_frames
from dovetail.spark.frames.columnless import steps_without_marks, with_columns
from dovetail.spark.frames.result_frames import columns_of_result
from dovetail.spark.frames.sampling import sample_sides
from dovetail.spark.frames.schemas import session_zone
from dovetail.spark.session.settings import beside_checkpoints, parallelism, shuffle_partitions
from dovetail.spark.session.shared_directory import ADVICE, SharedDirectory, runs_here, working_directory
from dovetail.spark.session.workers import freeze_modules
from dovetail.spark.worker_python import prepare_workers
from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.budget import bytes_of
from dovetail.storage.open_store import is_local

WAVES = "waves"
CELLS = 256  # more cells give earlier first results and narrower bounds; fewer cells mean less work in total
BY_AREA = 0.1  # share of a cell's weight: a cell without matches in the sample need not be empty
SAMPLED_ROWS = 1 << 14  # per side: the better the results of a cell are known, the narrower the bounds
FIRST_BYTES = 1 << 26  # of a side that first rows are joined with at once
JOINED = f"unit int, {GIVEN}"
ARROW_JOINED = pa.schema([("unit", pa.int32()), *ARROW_GIVEN])
BOUNDED = ("count", "sum", "avg")  # aggregates for which a part bounds the whole


def progressive_dataframes(request: Request) -> Iterator[Step]:
    """Steps with results and an estimate. Leaving the loop removes the files, unless there is a work_dir."""
    _check_inputs(request)
    columns = columns_of_result(request)
    request = request.but(suffix=columns.suffix)
    if request.algorithm == DIAG:
        return columns.of_steps(_along_diagonal(request))
    return columns.of_steps(steps_without_marks(_waves(request).steps()))


def explain_waves(request: Request) -> JoinPlan:
    """The plan of a progressive join, from the samples that it would take."""
    _check_inputs(request)
    if request.algorithm != DIAG:
        return _waves(request).explain_plan()
    if runs_in_tasks(request):
        return DiagonalWaves(request).plan
    return plan_early_diagonal(request)[0]


def _check_inputs(request: Request) -> None:
    """Refuse inputs that cannot be joined in waves, and check that workers can run the join."""
    if request.is_of_several:
        raise PlanError("progressive joins of three and more DataFrames are not supported; use dovetail.multijoin.")
    request.refuse_outside(Where.DIAGONAL_WAVES if request.algorithm == DIAG else Where.WAVES)
    if any(frame.isStreaming for frame in request.input_list):
        raise PlanError(
            "progressive joins need tables at rest; for streams, dovetail.join emits results as rows arrive."
        )
    prepare_workers(request.input_list[0].sparkSession)


def _along_diagonal(request: Request) -> Iterator[Step]:
    """A Diag-Join in this process or in tasks. If keys repeat on both sides, a join in cells."""
    if not runs_in_tasks(request):
        return progress_here(request)
    shared = _work_directory(request.work_dir, request.input_list[0].sparkSession)
    waves = DiagonalWaves(request)
    if waves.join is not None:
        return waves.steps(shared)
    return steps_without_marks(_waves(request.but(algorithm="auto", cells=None)).steps())


def _waves(request: Request) -> _Waves:
    left, right = with_columns(*request.input_list)
    bound = bind_frames(request.on, left, right, request.trusted)
    plan = plan_join(
        bound.condition,
        request.how,
        InputFacts("progressive", on_spark=True),
        algorithm=request.algorithm,
        memory_bytes=bytes_of(request.memory),
        parameters=request.parameters,
    )
    if bound.after:
        raise PlanError(f"only Spark can evaluate {text_of(bound.after[0])}: use dovetail.join.")
    schemas = (bound.visible(Side.LEFT), bound.visible(Side.RIGHT))
    output = output_schema(*schemas, request.suffix)
    wanted = parse_aggregates(request.aggregate, *schemas, session_zone(left)) if request.aggregate else ()
    _check_bounded(wanted)
    work: Work = Joining(bound.condition, JoinType.INNER, output, bound.extra)
    if wanted:
        work = Aggregating(bound.condition, wanted, ())
    return _Waves(bound, plan, output, tuple(wanted), work, request)


def _work_directory(given: str | None, spark: SparkSession) -> SharedDirectory:
    """The given directory, else one beside the session's checkpoints, else a temporary one.

    On one machine a temporary directory is better than a store, since everything is removed at the end.
    """
    beside = beside_checkpoints(spark)
    if given is None and beside is not None and (is_local(beside) or not runs_here(spark)):
        given = beside
    return working_directory(spark, given, ADVICE.format("Give work_dir="))


def _check_bounded(wanted: Sequence[Aggregate]) -> None:
    for aggregate in wanted:
        if aggregate.function not in BOUNDED:
            raise PlanError(
                f"{aggregate.text} has no bounds before all rows are read; give {', '.join(BOUNDED)}, or use "
                "dovetail.aggregate."
            )


class _Unit(NamedTuple):
    """A cell in a wave."""

    number: int  # in the order of the draws
    cell: int


class _Waves:
    def __init__(
        self,
        bound: Bound,
        plan: JoinPlan,
        output: pa.Schema,
        wanted: tuple[Aggregate, ...],
        work: Work,
        request: Request,
    ) -> None:
        self._spark = bound.frames[0].sparkSession
        self._bound = bound
        self._plan = plan
        self._output = output
        self._wanted = wanted
        self._work = work
        self._request = request
        self._until = Until.read(request.until)
        self._cells = request.cells or CELLS
        self._kept = request.work_dir is not None

    def steps(self) -> Iterator[Step]:
        """Run the join. Whether workers share the directory is checked first."""
        return self._steps(_work_directory(self._request.work_dir, self._spark))

    def _steps(self, shared: SharedDirectory) -> Iterator[Step]:
        until = self._until.start_clock()
        files = WaveFiles(shared if self._kept else new_directory(shared, WAVES))
        try:
            log = WaveLog.read(files, self._layout()) or self._run_first_results(files)
            for step in self._run(files, log):
                yield step
                if until.is_reached(step):
                    return
        finally:
            if self._kept:
                files.flush()
            else:
                files.remove_all()

    def _layout(self) -> dict[str, Any]:
        condition = self._bound.condition
        return {
            "condition": condition.text,
            "columns": [[[field.name, str(field.type)] for field in condition.schema(side)] for side in Side],
            "output": self._output.names,
            "aggregates": [[aggregate.name, aggregate.text] for aggregate in self._wanted],
        }

    def explain_plan(self) -> JoinPlan:
        """The plan with the findings of the samples."""
        routing = choose_router(self._task)
        plan = with_estimate(self._plan, self._few)
        return replace(plan, router=routing.choice, cells=routing.router.cells, tasks=routing.router.cells)

    # First rows and blocks.

    def _run_first_results(self, files: WaveFiles) -> WaveLog:
        """Sample both sides, and join a few rows with a whole side."""
        log, condition, samples = WaveLog(self._layout()), self._bound.condition, self._samples
        pairs = estimated_pairs(condition, self._few)
        sent = send_scouts(
            self._bound.frames, condition, samples, pairs, self._request.seed, self._work_in(files, FIRST_BYTES)
        )
        if sent is not None:
            log.first, log.found = sent
        if self._kept:
            log.note(files)
            log.begin(files)
        return log

    @cached_property
    def _samples(self) -> Samples:
        condition = self._bound.condition
        by_pair = not condition.finds_candidates  # all pairs of the sample are compared
        return sample_sides(self._bound.frames, condition, SAMPLE if by_pair else SAMPLED_ROWS)

    @property
    def _few(self) -> Samples:
        left, right = self._samples
        return left.thin(SAMPLE, Side.LEFT), right.thin(SAMPLE, Side.RIGHT)

    @property
    def _task(self) -> Task:
        condition = self._bound.condition
        return Task(condition, self._samples, max(1, self._cells // 2))

    def _draw_cells(self, files: WaveFiles, first: FirstResults | None) -> Drawn:
        """Write the blocks, and draw the order of the cells."""
        condition, frames, task = self._bound.condition, self._bound.frames, self._task
        router = choose_router(task).router
        if first is not None:
            frames = first.exclude_sampled(frames)
        if router.needs_spread:
            frames = (in_fixed_order(frames[0]), in_fixed_order(frames[1]))
        blocks, counted = write_blocks(frames, condition, router, files.directory)
        if first is not None:
            first.check(counted)
        rows = np.zeros((len(Side), router.cells))
        for block in blocks:
            rows[block.side, list(block.cells)] += block.block.rows
        area = rows[0] * rows[1]
        cells = np.flatnonzero(area)
        weights = _weights(task, router, area)[cells]
        return Drawn(blocks, cells.tolist(), weights.tolist(), self._request.seed)

    # Waves.

    def _run(self, files: WaveFiles, log: WaveLog) -> Iterator[Step]:
        if log.drawn is None:
            yield from self._handed_out(files, log, None)
            log.drawn = self._draw_cells(files, log.first)
            if self._kept:
                log.begin(files)
        drawn, draws = log.drawn, WeightedSample(log.drawn.weights, log.drawn.seed)
        size, spent = self._cores(), 0.0
        while True:
            if log.done or not drawn.cells:
                yield from self._handed_out(files, log, draws)
            if len(log.done) >= len(drawn.cells):
                return
            size = next_size(size, spent)
            units = [_Unit(i, drawn.cells[draws.order[i]]) for i in _following(log, drawn, size)]
            started = time.perf_counter()
            log.done += self._wave(files, drawn, units)
            spent = time.perf_counter() - started
            if self._kept:
                log.note(files)

    def _handed_out(self, files: WaveFiles, log: WaveLog, draws: WeightedSample | None) -> Iterator[Step]:
        """Finished results that were not emitted yet, as steps; at least one, once there are cells."""
        estimate, aggregates = self._estimates(log, draws)
        results = sum(given.handed_rows for given in log.given)
        share = 0.0 if log.drawn is None else len(log.done) / max(1, len(log.drawn.cells))
        told = draws is None
        for given in log.given:
            _drop_taken(files, given)
        wanted = [
            BlockPages(i, Block.from_json(given.block), given.handed_out)
            for i, given in enumerate(log.given)
            if given.block is not None
        ]
        for owner, batch in files.pages(wanted):
            given = log.given[owner]
            results += batch.num_rows
            given.handed_out, given.handed_rows, told = given.handed_out + 1, given.handed_rows + batch.num_rows, True
            try:
                yield Step(batch, Phase.CLEANUP, results, estimate, aggregates, done=share)
            finally:  # it was emitted, even if the caller stops here
                if self._kept:
                    log.note(files, soon=True)
                _drop_taken(files, given)
        if not told:
            nothing = empty_batch(self._output)
            yield Step(nothing, Phase.CLEANUP, results, estimate, aggregates, done=share)

    def _estimates(
        self, log: WaveLog, draws: WeightedSample | None
    ) -> tuple[Estimate | None, dict[str, Estimate | None] | None]:
        """Estimates of the number of results, or of each aggregate."""
        if draws is None:
            return None, dict.fromkeys(aggregate.name for aggregate in self._wanted) if self._wanted else None
        columns = ("matches", *partial_columns(self._wanted))
        known, values = (
            dict(zip(columns, np.array([one.values for one in given]).reshape(-1, len(columns)).T, strict=True))
            for given in (log.found, log.done)
        )
        if not self._wanted:
            return draws.count(values["matches"], known=known["matches"].sum()), None
        answers = {}
        for aggregate in self._wanted:
            given, besides = (
                [values[c] for c in columns_of(aggregate)],
                [float(known[c].sum()) for c in columns_of(aggregate)],
            )
            match aggregate.function:
                case "count":
                    answers[aggregate.name] = draws.count(given[0], known=besides[0])
                case "sum":
                    answers[aggregate.name] = draws.total(given[0], known=besides[0])
                case "avg":
                    answers[aggregate.name] = draws.ratio(given[0], given[1], known=(besides[0], besides[1]))
        return None, answers

    def _wave(self, files: WaveFiles, drawn: Drawn, units: list[_Unit]) -> list[Given]:
        """Join some cells, in a job with as many tasks as there are cores."""
        tasks = min(len(units), self._cores())
        blocks: dict[int, list[list[dict[str, Any]]]] = {unit.cell: [[], []] for unit in units}
        for block in drawn.blocks:
            for cell in blocks.keys() & set(block.cells):
                blocks[cell][block.side].append(block.block.to_json())
        rows = [(i % tasks, unit.number, json.dumps(blocks[unit.cell])) for i, unit in enumerate(units)]
        listed = self._spark.createDataFrame(rows, "task int, unit int, files string")
        frame = repartition_by_id(listed, tasks, "task")
        work = self._work_in(files, chunk_size(self._plan.memory_bytes))
        by_unit = {row.unit: row for row in frame.mapInArrow(_joiner(work), JOINED).collect()}
        return [Given.from_row(by_unit[unit.number]) for unit in units]

    def _work_in(self, files: WaveFiles, chunk_bytes: int) -> WaveWork:
        sums = len(partial_columns(self._wanted)) if self._wanted else None
        return WaveWork(self._work, sums, files.directory, chunk_bytes)

    def _cores(self) -> int:
        return max(1, min(shuffle_partitions(self._bound.frames[0]), parallelism(self._spark)))


def _weights(task: Task, router: Router, area: Any) -> Any:
    expected = np.where(area > 0, expected_pairs(task, router), 0.0)
    if not expected.sum():
        return area
    return (1 - BY_AREA) * expected / expected.sum() + BY_AREA * area / area.sum()


def _drop_taken(files: WaveFiles, given: Given) -> None:
    """Remove results that were all emitted. Only after this was logged: a missing file would be an error."""
    if given.block is not None and given.handed_rows >= given.block["rows"]:
        files.remove(Block.from_json(given.block))
        given.block = None


def _following(log: WaveLog, drawn: Drawn, size: int) -> range:
    return range(len(log.done), min(len(log.done) + size, len(drawn.cells)))


def _joiner(work: WaveWork) -> Rewrite:
    """A function for mapInArrow that joins cells: rows from files, results into files."""

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.select(["unit", "files"]).to_pylist():
                sides = [[Block.from_json(fields) for fields in side] for side in json.loads(row["files"])]
                given = work.meet(Side.LEFT, _rows(BlockStore(work.directory), sides))
                yield pa.RecordBatch.from_pylist([{"unit": row["unit"], **given}], ARROW_JOINED)
        freeze_modules()

    return join


def _rows(store: BlockStore, sides: list[list[Block]]) -> Iterator[tuple[Side, pa.RecordBatch]]:
    for side in Side:
        for block in sides[side]:
            for page in range(store.pages(block)):
                yield side, store.read_pages(block, page, page + 1)[0]
