"""Two inequalities within a window of 1M rows of both streams, micro-batch by micro-batch.

`spo` joins whole micro-batches; DuckDB joins each micro-batch with the window; the published structures process one row
at a time and are timed on a few rows. All contenders start from the same full window, and their answer is the number of
results of the first rows after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.baselines.chain_index import chain_index_join
from benchmarks.baselines.po_join import po_join
from benchmarks.baselines.predicates import Query
from benchmarks.baselines.windowed import WindowJoin
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Side
from dovetail.operators.protocol import Workspace
from dovetail.operators.spo.spo import Spo
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.window import window

ON = "l.x < r.x AND l.y > r.y"
FIRST = 100  # rows whose results are compared, and on which row-by-row structures are timed
NOISE = 6.0  # of y around x, for about one match, found by trial

Timed = tuple[int, float]  # results of the first rows, seconds per row


@dataclass(slots=True)
class Streams:
    """Micro-batches of both sides in turn: the first fill the window, the last few are for the timed runs."""

    batches: list[pa.RecordBatch]
    rows: int  # of the window
    slide: int
    filling: int  # how many batches fill it
    singles: dict[str, WindowJoin] = field(default_factory=dict)  # structures that process one row at a time

    def side(self, number: int) -> Side:
        return Side(number % 2)


def streams(rows: int, slide: int, batch: int, matches: float, timed: int) -> Streams:
    rng = np.random.default_rng(0)
    noise = NOISE * matches / (rows / 2)

    def one() -> pa.RecordBatch:
        x = rng.random(batch)
        return pa.RecordBatch.from_pydict({"x": x, "y": x + noise * rng.random(batch)})

    filling = rows // batch
    return Streams([one() for _ in range(filling + timed)], rows, slide, filling)


def dovetail_spo(data: Streams) -> Timed:
    """Join all batches after those that fill the window; every call starts from its own full window."""
    operator = _filled(data)
    first, seconds = 0, 0.0
    timed = range(data.filling, len(data.batches))
    for number in timed:
        started = time.process_time()
        found = list(operator.arrive(data.side(number), data.batches[number]))
        seconds += time.process_time() - started
        if number == data.filling:
            pairs = [f for f in found if f.is_complete]
            first = sum(int((p.left_rows < FIRST).sum()) for p in pairs)
    return first, seconds / sum(data.batches[number].num_rows for number in timed)


def _filled(data: Streams) -> Spo:
    schema = data.batches[0].schema
    bounds = window(rows=data.rows, slide=data.slide)
    workspace = Workspace(Graph.of(parse(ON, schema, schema)), Budget(None), BlockStore(), 1 << 16, Counters())
    workspace.parameters["window"] = bounds
    operator = Spo(workspace)
    for number in range(data.filling):
        for _ in operator.arrive(data.side(number), data.batches[number]):
            pass
    return operator


def duckdb_batches(data: Streams) -> Timed:
    """Join one micro-batch with the window: the rows that fit in it, filtered by position."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    number = data.filling
    batch = data.batches[number]
    size = batch.num_rows
    others = [n for n in range(number) if n % 2 != number % 2]
    positions = [pa.array(np.arange(n * size, (n + 1) * size)) for n in others]
    stored = pa.concat_tables(
        pa.Table.from_batches([data.batches[n].append_column("at", p)]) for n, p in zip(others, positions, strict=True)
    )
    probes = pa.Table.from_batches([batch.append_column("at", pa.array(np.arange(number * size, (number + 1) * size)))])
    connection.register("l", probes)
    connection.register("r", stored)
    query = f"SELECT l.at, r.at AS other FROM l JOIN r ON {ON} WHERE l.at - r.at < {data.rows}"
    started = time.process_time()
    found: pa.Table = connection.execute(query).to_arrow_table()
    seconds = time.process_time() - started
    rows = np.asarray(found["at"]) - number * size
    return int((rows < FIRST).sum()), seconds / size


def po_join_rows(data: Streams) -> Timed:
    return _singly(data, "po_join", lambda query: po_join(query, data.rows, data.slide))


def chain_index_rows(data: Streams) -> Timed:
    return _singly(data, "chain_index", lambda query: chain_index_join(query, data.rows, data.slide))


def _singly(data: Streams, name: str, make: Callable[[Query], WindowJoin]) -> Timed:
    """Process rows of the next micro-batch one by one; every call continues where the one before stopped."""
    if name not in data.singles:
        join = make(Query.of("<", ">"))
        for number in range(data.filling):
            for row in _keys(data.batches[number]):
                join.load(data.side(number), row)
        data.singles[name] = join
    join = data.singles[name]
    start = join.arrived - data.filling * data.batches[0].num_rows
    keys = _keys(data.batches[data.filling])[start : start + FIRST]
    started = time.process_time()
    found = sum(len(join.arrive(data.side(data.filling), row).left) for row in keys)
    return found, (time.process_time() - started) / FIRST


def _keys(batch: pa.RecordBatch) -> NDArray[np.float64]:
    return np.stack([np.asarray(column) for column in batch.columns], axis=1)
