"""Runs of the progressive merge join and of its strict relatives, with the cost up to each result."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.datasets import read_columns
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, End, Event, Phase, Side
from dovetail.execution.driver import Driver
from dovetail.operators.pmj.pmj import Pmj
from dovetail.operators.protocol import Workspace
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

PAGE_BYTES = 4096
FIRST = 100  # results


@dataclass(slots=True)
class Course:
    """The cost of a run up to its results. Reading the input and emitting results is free, as in the paper."""

    pages: int  # of both inputs
    run_pairs: int = 0
    results: int = 0
    first_io: int = -1  # pages read and written before the first result
    first_rows: int = -1  # rows that had arrived by then
    early: int = 0  # results before the first merge
    hundredth: tuple[int, int] = (-1, -1)  # rows and pages before the hundredth result
    distinct: int = 0  # distinct pairs of rows among the results, if counted
    counters: Counters = field(default_factory=Counters)

    @property
    def io(self) -> int:
        return io(self.counters)

    @property
    def early_share(self) -> float:
        return self.early / max(1, self.results)


def io(counters: Counters) -> int:
    return counters.pages_written + counters.pages_read_sequential + counters.pages_read_random


def run(
    left: pa.Table,
    right: pa.Table,
    on: str,
    memory: float,
    row_bytes: int,
    *,
    how: str = "inner",
    distinct: bool = False,
    first_only: bool = False,
    **parameters: Any,
) -> Course:
    """Rows of both sides arrive in turn; memory is a share of both inputs, plus two pages of input.

    `first_only`: the run ends with its hundredth result.
    """
    page_rows = max(1, PAGE_BYTES // row_bytes)
    sizes = (left.num_rows, right.num_rows)
    course = Course(sum(math.ceil(rows / page_rows) for rows in sizes))
    limit = math.ceil(memory * sum(sizes)) + 2 * page_rows
    counters = course.counters
    blocks = BlockStore(counters=counters)
    condition = parse(on, left.schema, right.schema, in_process=True)
    parameters = {"first_rows": None, "fan_in": 20, **parameters}
    budget = Budget(limit, "rows", counters)
    workspace = Workspace(
        Graph.of(condition), budget, blocks, page_rows, counters, parameters=parameters, how=JoinType.read(how)
    )
    operator = Pmj(workspace)
    course.run_pairs = math.ceil(sum(sizes) / (limit - page_rows))
    pairs: set[tuple[int, int]] = set()
    try:
        for phase, found in Driver(operator, workspace).run(_in_turn((left, right), page_rows)):
            if found.size and course.first_io < 0:
                course.first_io, course.first_rows = io(counters), counters.rows_received
            course.results += found.size
            if course.results >= FIRST and course.hundredth[0] < 0:
                course.hundredth = (counters.rows_received, io(counters))
                if first_only:
                    break
            if phase is not Phase.CLEANUP or not counters.pages_read_random:
                course.early = course.results
            if distinct and found.is_complete:
                columns = [batch.column("row").to_numpy() for batch in (found.left, found.right)]
                rows = columns[0][found.left_rows].tolist(), columns[1][found.right_rows].tolist()
                pairs.update(zip(*rows, strict=True))
    finally:
        blocks.close()
    course.distinct = len(pairs)
    return course


def _in_turn(tables: tuple[pa.Table, pa.Table], page_rows: int) -> Any:
    """A page of the larger side, and a proportional part of the other."""
    most = max(table.num_rows for table in tables)
    steps = math.ceil(most / page_rows)
    events: list[Event] = []
    batches = [table.combine_chunks().to_batches()[0] for table in tables]
    for step in range(steps):
        for side in Side:
            start, end = (tables[side].num_rows * at // steps for at in (step, step + 1))
            if end > start:
                events.append(Arrival(side, batches[side].slice(start, end - start)))
    return [*events, End(Side.LEFT), End(Side.RIGHT)]


# Data.


def uniform(rows: int, values: int, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """UNI1 and UNI2: uniform integers of four bytes."""
    rng = np.random.default_rng(seed)
    left, right = (
        pa.table({"k": rng.integers(0, values, rows).astype(np.int32), "row": np.arange(rows)}) for _ in range(2)
    )
    return left, right


RECTANGLES = "l.xmin <= r.xmax AND l.xmax >= r.xmin AND l.ymin <= r.ymax AND l.ymax >= r.ymin"


def rectangles(rows: tuple[int, int], seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """Rectangles like those of streets (ST) and of rivers and railways (RR), in random order, of the same number."""
    rng = np.random.default_rng(seed)
    tables = []
    for count in rows:
        x, y = rng.random(count), rng.random(count)
        width, height = (rng.exponential(0.4 / math.sqrt(max(rows)), count) for _ in range(2))
        tables.append(pa.table({"xmin": x, "xmax": x + width, "ymin": y, "ymax": y + height}))
    return tables[0], tables[1]


def rivers_and_borders(seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """Real rectangles, shuffled."""
    rng = np.random.default_rng(seed)
    tables = [read_columns(name, "xmin", "ymin", "xmax", "ymax") for name in ("geo_us_rivers", "geo_us_borders")]
    left, right = (table.take(rng.permutation(table.num_rows)) for table in tables)
    return left, right


DIMENSIONS = 16


def nearer(radius: float) -> str:
    squares = " + ".join(f"pow(l.x{d} - r.x{d}, 2)" for d in range(DIMENSIONS))
    return f"sqrt({squares}) <= {radius}"


def _points(points: NDArray[np.float64]) -> pa.Table:
    return pa.table({f"x{d}": points[:, d] for d in range(DIMENSIONS)})


def clusters(rows: int, count: int, *, shuffled: bool, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """CAD1 and CAD2: points around centres, with the centres in the same order in both inputs."""
    rng = np.random.default_rng(seed)
    centres = np.repeat(rng.random((count, DIMENSIONS)), rows // count, axis=0)
    sides = [centres + rng.normal(0, 0.005, centres.shape) for _ in range(2)]
    if shuffled:
        sides = [rng.permutation(side) for side in sides]
    return _points(sides[0]), _points(sides[1])


def fashion(rows: int, *, shuffled: bool, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """Images of clothes as 16 brightness values: alternately on each side, sorted by kind of clothing or shuffled."""
    rng = np.random.default_rng(seed)
    table = read_columns("fashion16", "label", *(f"f{d}" for d in range(DIMENSIONS)))
    points = np.column_stack([np.asarray(column, dtype=np.float64) for column in table.columns[1:]])[: 2 * rows]
    order = np.argsort(np.asarray(table["label"])[: 2 * rows], kind="stable")
    points = points[rng.permutation(len(points)) if shuffled else order]
    return _points(points[0::2]), _points(points[1::2])
