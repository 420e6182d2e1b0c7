"""Early results of a Diag-Join of DataFrames.

    in this process     if tasks run on this machine anyway: first results when half a window is read
    in tasks            slices along the diagonal, a few at a time, then more; then the rest, by an ordinary join
                          --> results in files in the shared directory --> steps

In tasks, the keys are surveyed before the first slice (spark/diag/join.py). Only file names and the emitted results
pass through this process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from dovetail.core.join_types import JoinType
from dovetail.core.rows import Phase, Side
from dovetail.diag.choice import ScanDiagonals
from dovetail.diag.join import join_along_diagonal
from dovetail.execution.in_process import Step
from dovetail.execution.output import output_schema
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import DIAG, InputFacts, plan_join
from dovetail.request import Request
from dovetail.sources.parquet_files import ParquetRows
from dovetail.spark.diag.join import DiagonalTables, FrameDiagonals, wanted_scans
from dovetail.spark.early.files import BlockPages, WaveFiles, new_directory
from dovetail.spark.early.tasks import ARROW_GIVEN, GIVEN, Given, next_size, write_results
from dovetail.spark.exchange.arrow_tasks import Part, in_tasks
from dovetail.spark.exchange.packing import Rewrite, as_planned
from dovetail.spark.frames.binding import Bound, bind_frames
from dovetail.spark.session.settings import parallelism
from dovetail.spark.session.shared_directory import SharedDirectory, runs_here
from dovetail.spark.session.workers import freeze_modules
from dovetail.storage.blocks import Block, BlockStore
from dovetail.storage.budget import bytes_of

STEM = "diagonal"
SLICES = 64  # more slices give earlier first results; fewer slices read fewer rows of R1 twice

Inputs = tuple[DataFrame, DataFrame]


def runs_in_tasks(request: Request) -> bool:
    """Whether tasks run the join instead of this process: with a directory or a number of slices, and on clusters."""
    return (
        request.work_dir is not None or request.cells is not None or not runs_here(request.input_list[0].sparkSession)
    )


def plan_early_diagonal(request: Request) -> tuple[JoinPlan, tuple[ParquetRows, ParquetRows]]:
    """The plan in this process, and the rows to read."""
    left, right = request.input_list
    bound, scans = wanted_scans(bind_frames(request.on, left, right, request.trusted), (left, right), JoinType.INNER)
    facts = InputFacts("progressive", on_spark=True, diagonal=ScanDiagonals(scans))
    return _plan(request, bound, facts), scans


def _plan(request: Request, bound: Bound, facts: InputFacts) -> JoinPlan:
    memory_bytes, wish = bytes_of(request.memory), {**request.parameters, **request.diagonal}
    return plan_join(bound.condition, request.how, facts, algorithm=DIAG, memory_bytes=memory_bytes, parameters=wish)


def progress_here(request: Request) -> Iterator[Step]:
    """Steps with results; no Spark job runs."""
    plan, scans = plan_early_diagonal(request)
    return join_along_diagonal(plan, scans, output_schema(*plan.condition.schemas, request.suffix, plan.how))


class DiagonalWaves:
    """A join in tasks. `join` is None if keys repeat on both sides, or a side is empty."""

    def __init__(self, request: Request) -> None:
        left, right = request.input_list
        bound: Bound = bind_frames(request.on, left, right, request.trusted)
        self._spark = left.sparkSession
        self._output = output_schema(bound.visible(Side.LEFT), bound.visible(Side.RIGHT), request.suffix)
        request = request.but(cells=request.cells or max(SLICES, 2 * parallelism(self._spark)))
        diagonals = FrameDiagonals((left, right), bound, self._output, request)
        self.plan = _plan(request, bound, InputFacts("progressive", on_spark=True, diagonal=diagonals))
        self.join: DiagonalTables | None = diagonals.join

    def steps(self, shared: SharedDirectory) -> Iterator[Step]:
        assert self.join is not None
        files = WaveFiles(new_directory(shared, STEM))
        results, done, size, spent = 0, 0, parallelism(self._spark), 0.0
        rest = list(self.join.rest())
        slices = len(self.join.sliced.slices)
        try:
            while done < slices + len(rest):
                started = time.perf_counter()
                if done < slices:
                    size = next_size(size, spent)
                    wave = range(done, min(slices, done + size))
                    given = self._run_slices(files, wave)
                    phase, done = Phase.ARRIVING, wave.stop
                else:
                    given = self._run_rest(files, rest[done - slices])
                    phase, done = Phase.CLEANUP, done + 1
                spent = time.perf_counter() - started
                for batch in _hand_out(files, given):
                    results += batch.num_rows
                    yield Step(batch, phase, results, None, done=done / (slices + len(rest)))
        finally:
            files.remove_all()

    def _run_slices(self, files: WaveFiles, wave: range) -> list[Given]:
        assert self.join is not None
        work = _slice_writer(self.join.hits(), files.directory, wave.start)
        return [Given.from_row(row) for row in in_tasks(self._spark, len(wave), work, GIVEN).collect()]

    def _run_rest(self, files: WaveFiles, rest: DataFrame) -> list[Given]:
        work = _row_writer(files.directory, self._output)
        return [Given.from_row(row) for row in rest.mapInArrow(work, GIVEN).collect()]


def _hand_out(files: WaveFiles, given: list[Given]) -> Iterator[pa.RecordBatch]:
    blocks = [Block.from_json(one.block) for one in given if one.block is not None]
    for _, batch in files.pages([BlockPages(number, block, 0) for number, block in enumerate(blocks)]):
        yield batch
    for block in blocks:
        files.remove(block)


# In the tasks.


def _slice_writer(hits: Part, directory: Any, first: int) -> Part:
    def write(number: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([write_results(BlockStore(directory), hits(first + number))], ARROW_GIVEN)

    return write


def _row_writer(directory: Any, output: pa.Schema) -> Rewrite:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (as_planned(batch, output) for batch in batches if batch.num_rows)
        yield pa.RecordBatch.from_pylist([write_results(BlockStore(directory), rows)], ARROW_GIVEN)
        freeze_modules()

    return write
