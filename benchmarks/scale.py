"""The cost of 2 to 512 cells: rows copied, bytes shuffled, the largest cell, state, requests to a store. Draws curves.

    python -m benchmarks.scale               # prints tables
    python -m benchmarks.scale --svg docs/scale
    python -m benchmarks.scale --spark       # measures Spark's own cost of a micro-batch, in about two minutes

Routers are chosen and run as in a join on Spark, on samples and on all rows of generated and real tables (those of
benchmarks/datasets.py; missing ones are skipped). The cost of a cell's micro-batch is measured here without Spark, and
its requests are counted by a server on loopback; the overhead of a cluster is calculated.
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import SkipTest, mock

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.balance import jobs, trips, zones
from benchmarks.whole_rows import Sides, skewed
from dovetail.columns.batches import one_batch
from dovetail.columns.taking import take_rows
from dovetail.condition import parse
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.execution.output import output_schema
from dovetail.planning.planner import InputFacts, plan_join
from dovetail.planning.statistics import Sample, read_columns
from dovetail.routing import Task, choose_router, in_tasks, one_bucket
from dovetail.routing.routers import HashRouter, Router

CELLS = (2, 4, 8, 16, 32, 64, 128, 256, 512)
SAMPLED = 1 << 14
ROW_BYTES = 100  # size of a shuffled row
SPARK_TRIGGER_S, SPARK_TASK_S = (
    1.8,
    0.3,
)  # of a micro-batch of a stateful query, and of a core for each partition; measured with --spark
DRIVER_TASK_S = 0.005  # to start a task and receive its answer: an assumption
TRIGGER_S = 10.0  # the trigger interval set by the user
CORES_PER_CELL = 0.5
STREAMED = (1_000, 1_000_000, 10_000_000)  # rows of a micro-batch


def uniform() -> Sides:
    rng = np.random.default_rng(0)
    left, right = (pa.table({"x": rng.random(100_000), "y": rng.random(100_000)}) for _ in range(2))
    return left, right


WORKLOADS: dict[str, tuple[Callable[[], Sides], str]] = {
    "equality, Zipf 1.3": (lambda: skewed(300_000, 1.3), "l.k = r.k"),
    "zones, equality": (zones, "l.pu_zone = r.do_zone"),
    "trips, band": (trips, "abs(l.fare_amount - r.fare_amount) <= 0.1"),
    "trips, two inequalities": (trips, "l.trip_distance < r.trip_distance AND l.fare_amount > r.fare_amount"),
    "jobs that overlap": (jobs, "l.s < r.e AND l.e > r.s"),
    "uniform, any condition": (uniform, "l.x * r.y > l.y + r.x - 0.9"),
}


class Cut(NamedTuple):
    """A join that is divided into this many cells."""

    router: str
    cells: int
    copies: float  # average visits per row
    largest_rows: float  # of a task, relative to the mean
    largest_work: float  # the same for rows and pairs, as expected by the plan
    megabytes: float  # shuffled, for a million rows on each side


def cut_join(sides: Sides, on: str, tasks: int) -> Cut:
    left, right = (one_batch(table, table.schema) for table in sides)
    condition = parse(on, left.schema, right.schema)
    batches = tuple(
        batch.select(read_columns(condition, side)) for side, batch in zip(Side, (left, right), strict=True)
    )
    samples = (_sample(batches[0], 0), _sample(batches[1], 1))
    routing = choose_router(Task(condition, samples, tasks))
    router = routing.router
    rows = np.zeros(router.cells)
    visits = 0
    for side in Side:
        went = router.route(side, batches[side], np.arange(batches[side].num_rows))
        rows += np.bincount(went.cells, minlength=router.cells)
        visits += len(went.rows)
    of_task = in_tasks(routing.loads, tasks)
    by_task = np.bincount(of_task, rows, minlength=tasks)
    work = np.bincount(of_task, routing.loads, minlength=tasks)
    copies = visits / sum(batch.num_rows for batch in batches)
    return Cut(
        routing.choice.name,
        router.cells,
        copies,
        float(by_task.max() / max(1e-9, by_task.mean())),
        float(work.max() / max(1e-9, work.mean())),
        copies * 2e6 * ROW_BYTES / 1e6,
    )


def _sample(batch: pa.RecordBatch, seed: int) -> Sample:
    chosen = np.random.default_rng(seed).choice(batch.num_rows, min(batch.num_rows, SAMPLED), replace=False)
    return Sample(batch.num_rows, take_rows(batch, np.sort(chosen)))


class CellCosts(NamedTuple):
    """Costs of one cell."""

    row_us: float  # per row of a micro-batch: unpack, probe, keep
    batch_ms: float  # per micro-batch with hardly any rows
    puts: float  # per micro-batch, to a store
    other_requests: float  # listings and deletions
    row_bytes: float  # state per row


def measure_cell() -> CellCosts:
    """A cell of a stream join on equality, without Spark, with its state in a store on loopback."""
    from tests.storage.s3_server import s3_server

    from dovetail.spark.streaming import cell_state
    from dovetail.spark.streaming.cell_processor import CellProcessor
    from dovetail.storage.open_store import open_store

    known = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "0"}
    context = SimpleNamespace(getLocalProperty=known.get, partitionId=lambda: 0)
    rng = np.random.default_rng(0)
    with s3_server() as server, mock.patch.object(cell_state, "TaskContext", SimpleNamespace(get=lambda: context)):
        join = _stream_join(open_store(server.uri("state")))
        stored: str | None = None
        seconds: dict[int, list[float]] = {20: [], 4000: []}
        kept = 0
        server.requests.clear()
        for number in range(64):
            rows = 20 if number % 2 else 4000
            frames = []
            for side in Side:
                keys = {"k": rng.integers(0, 1 << 20, rows), "a": np.arange(rows), "pad": ["x" * 60] * rows}
                packed = join.packer(side)(iter([pa.record_batch(keys, SCHEMA)]))
                frames += [batch.to_pandas().drop(columns="cell") for batch in packed]
            handle: Any = _StateStore(stored)
            started = time.process_time()
            processor = CellProcessor(join)
            processor.start(handle, handle)
            for _ in processor.handleInputRows((0,), iter(frames), None):  # type: ignore[arg-type]
                pass
            processor.close()
            seconds[rows].append(time.process_time() - started)
            stored = handle.stored
            kept += 2 * rows
        puts = server.requests["PUT"] / 64
        others = (sum(server.requests.values()) - server.requests["PUT"]) / 64
        nbytes = sum(len(o.data) for name, o in server.objects.items() if name.endswith(".arrow"))
    few, many = (float(np.median(seconds[rows])) for rows in (20, 4000))
    return CellCosts(1e6 * (many - few) / 2 / 3980, 1e3 * few, puts, others, nbytes / kept)


class _StateStore:
    """Stands in for Spark's state store: the state of a cell, under one key."""

    def __init__(self, stored: str | None) -> None:
        self.stored = stored

    def get(self) -> tuple[str] | None:
        return None if self.stored is None else (self.stored,)

    def update(self, value: tuple[str]) -> None:
        (self.stored,) = value


SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("pad", pa.string())])


def _stream_join(place: Any) -> Any:
    from dovetail.spark.streaming.stream_join import Setting, StreamJoin

    condition = parse("l.k = r.k", SCHEMA, SCHEMA)
    plan = plan_join(condition, "inner", InputFacts("stream", on_spark=True))
    output = output_schema(SCHEMA, SCHEMA, "_r", JoinType.INNER)
    return StreamJoin(plan, (0, 0), output, Setting(1, place, "join"), HashRouter(condition, 1))


class Hour(NamedTuple):
    """A stream join of this many cells, on half as many cores."""

    seconds: float  # per micro-batch
    requests: float  # per hour, with a trigger of ten seconds
    copies: float  # per row, without an equality: each row goes to a row or a column of a grid of cells


def run_hour(costs: CellCosts, cells: int, rows: int) -> Hour:
    """`rows`: per micro-batch. Two cells share a core."""
    cores = max(1.0, CORES_PER_CELL * cells)
    busy = cells * (costs.batch_ms / 1e3 + SPARK_TASK_S) / cores + rows * costs.row_us / 1e6 / cores
    took = SPARK_TRIGGER_S + DRIVER_TASK_S * cells + busy
    requests = 3600 / max(TRIGGER_S, took) * cells * (costs.puts + costs.other_requests)
    condition = parse("l.x * r.y > l.y + r.x", *(pa.schema([("x", pa.float64()), ("y", pa.float64())]),) * 2)
    router, _ = one_bucket(condition, cells, (1, 1), None)
    return Hour(took, requests, _grid_copies(router))


def _grid_copies(router: Router) -> float:
    batch = pa.record_batch({"x": np.zeros(1000), "y": np.zeros(1000)})
    return sum(len(router.route(side, batch, np.arange(1000)).rows) for side in Side) / 2000


# Spark's own cost.


def measure_spark() -> dict[int, float]:
    """Seconds of a micro-batch of a stream join with hardly any rows, by the number of partitions."""
    import dovetail
    from dovetail.spark.session.session import local_session

    spark = local_session("scale")
    found: dict[int, float] = {}
    for partitions in (2, 8, 32):
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        place = Path(tempfile.mkdtemp())
        rate = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
        left, right = rate.selectExpr("value AS k", "value AS a"), rate.selectExpr("value AS k", "value AS b")
        joined = dovetail.join(left, right, "l.k = r.k", state_dir=str(place / "state"))
        query = joined.writeStream.format("noop").option("checkpointLocation", str(place / "checkpoint")).start()
        while len(query.recentProgress) < 12 and query.isActive:
            time.sleep(0.1)
        took = [p.batchDuration / 1e3 for p in query.recentProgress[4:]]
        query.stop()
        shutil.rmtree(place, ignore_errors=True)
        found[partitions] = float(np.median(took))
    spark.stop()
    return found


# Curves.

WIDTH, HEIGHT, LEFT, BOTTOM = 460, 250, 52, 34
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")


def draw_curves(title: str, unit: str, curves: Mapping[str, Sequence[float]]) -> str:
    """A small plot: cells on the x axis, in powers of two; values on the y axis, in powers of ten."""
    values = [value for curve in curves.values() for value in curve if value > 0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) + 1e-9)
    high = max(high, low + 1)

    def x(number: int) -> float:
        return LEFT + number * (WIDTH - LEFT - 130) / (len(CELLS) - 1)

    def y(value: float) -> float:
        share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - 30)

    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    paper = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    parts = [f'{head} font-size="10">{paper}<text x="{LEFT}" y="14" font-size="12">{title}</text>']
    for power in range(low, high + 1):
        at = y(10.0**power)
        label = f"{10.0**power:g}{unit}"
        parts.append(
            f'<line x1="{LEFT}" x2="{x(len(CELLS) - 1):.0f}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 4}" y="{at + 3:.1f}" text-anchor="end">{label}</text>'
        )
    parts += [
        f'<text x="{x(number):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{cells}</text>'
        for number, cells in enumerate(CELLS)
    ]
    parts.append(f'<text x="{x(4):.0f}" y="{HEIGHT - 4}" text-anchor="middle">cells</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(curve))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
            f'<text x="{WIDTH - 122}" y="{34 + 13 * number}" fill="{colour}">{name}</text>'
        )
    return "".join(parts) + "</svg>\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--svg", type=Path, help="a directory to draw curves into")
    parser.add_argument("--spark", action="store_true", help="measure Spark's cost of a micro-batch")
    given = parser.parse_args()
    console = Console(width=150)
    if given.spark:
        console.print({partitions: f"{s:.2f} s" for partitions, s in measure_spark().items()})
        return
    cuts: dict[str, list[Cut]] = {}
    for name, (data, on) in WORKLOADS.items():
        try:
            sides = data()
        except SkipTest as missing:
            console.print(f"{name}: {missing}")
            continue
        cuts[name] = [cut_join(sides, on, max(1, cells // 2)) for cells in CELLS]
    table = Table(
        "join: router at 512", *(f"{cells}" for cells in CELLS), title="copies of a row / largest task over mean"
    )
    for name, found in cuts.items():
        table.add_row(f"{name}: {found[-1].router}", *(f"{one.copies:.2f} / {one.largest_work:.2f}" for one in found))
    console.print(table)
    costs = measure_cell()
    console.print(costs._asdict())
    hours = {rows: [run_hour(costs, cells, rows) for cells in CELLS] for rows in STREAMED}
    table = Table("stream", *(f"{cells}" for cells in CELLS))
    for rows, found_hours in hours.items():
        table.add_row(f"{rows:,} rows: seconds", *(f"{hour.seconds:.1f}" for hour in found_hours))
        table.add_row(f"{rows:,} rows: requests an hour", *(f"{hour.requests:,.0f}" for hour in found_hours))
    table.add_row("copies without an equality", *(f"{hour.copies:.1f}" for hour in hours[1_000]))
    state = [100e6 * costs.row_bytes / cells / 1e6 for cells in CELLS]
    table.add_row("100 million rows: MB of state in a cell", *(f"{value:,.0f}" for value in state))
    console.print(table)
    if given.svg is not None:
        given.svg.mkdir(parents=True, exist_ok=True)
        pictures = {
            "copies": ("copies of a row", "", {name: [one.copies for one in found] for name, found in cuts.items()}),
            "largest": (
                "largest task over the mean",
                "",
                {name: [one.largest_work for one in found] for name, found in cuts.items()},
            ),
            "shuffled": (
                "shuffled, of two million rows",
                " MB",
                {name: [one.megabytes for one in found] for name, found in cuts.items()},
            ),
            "requests": (
                "requests to a store in an hour",
                "",
                {f"{rows:,} rows": [hour.requests for hour in found] for rows, found in hours.items()},
            ),
            "state": (
                "state in a cell, of 100 million rows",
                " MB",
                {
                    "equality": state,
                    "any condition": [value * hour.copies for value, hour in zip(state, hours[1_000], strict=True)],
                },
            ),
            "seconds": (
                "a micro-batch, two cells to a core",
                " s",
                {f"{rows:,} rows": [hour.seconds for hour in found] for rows, found in hours.items()},
            ),
        }
        for name, (title, unit, curves) in pictures.items():
            (given.svg / f"{name}.svg").write_text(draw_curves(title, unit, curves))


if __name__ == "__main__":
    main()
