"""Packed batches: one Spark row carries thousands of rows.

    rows --pack--> (cell, side, seq, Arrow IPC bytes) --shuffle--> unpack --> rows

A Spark row costs microseconds in a Python worker and in the shuffle; a packed row carries a batch at the cost of one
row. Arrow keeps every column as it is, so columns of any type arrive unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import concatenate, put_together
from dovetail.columns.taking import take_rows
from dovetail.core.parts import chunk_ranges
from dovetail.core.rows import Side
from dovetail.execution.output import fitting_rows
from dovetail.routing.routers import Hypercube, Router, Spread, Visits
from dovetail.spark.session.workers import freeze_modules

PACKED = "cell int, side tinyint, seq bigint, payload binary"
"""The schema of packed rows, in Spark's syntax."""

ARROW_PACKED = pa.schema([("cell", pa.int32()), ("side", pa.int8()), ("seq", pa.int64()), ("payload", pa.binary())])
PACK_ROWS = 1 << 16  # rows buffered before they are distributed to cells
PACK_BYTES = 1 << 24

Rewrite = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for mapInArrow."""

Route = Callable[[pa.RecordBatch, Spread, int], tuple[pa.RecordBatch, Visits]]
"""Routes the rows of a batch. Takes numbers that choose between equivalent cells, and the number of the partition."""


def to_bytes(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def from_bytes(payload: pa.Buffer | bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(payload) as reader:
        batch: pa.RecordBatch = reader.read_next_batch()
    return batch


def packer(
    side: Side,
    router: Router,
    schema: pa.Schema,
    labels: Sequence[int] | None = None,
    keep_all: bool = False,
    most_bytes: int = PACK_BYTES,
) -> Rewrite:
    """A function for mapInArrow that routes and packs the rows of one side.

    `labels` rename the cells. With `keep_all`, rows that cannot match are sent to a cell as well. Rows are distributed
    when `most_bytes` of them are buffered.
    """

    def route(batch: pa.RecordBatch, spread: Spread, partition: int) -> tuple[pa.RecordBatch, Visits]:
        visits = router.route(side, batch, spread)
        return batch, with_all(visits, batch.num_rows, partition % router.cells) if keep_all else visits

    return _packer(side, schema, route, labels, most_bytes)


def multi_packer(
    router: Hypercube, number: int, labels: Sequence[int] | None = None, most_bytes: int = PACK_BYTES
) -> Rewrite:
    """A function for mapInArrow that routes and packs the rows of one input of a multi-way join."""
    alias = router.graph.aliases[number]

    def route(batch: pa.RecordBatch, spread: Spread, partition: int) -> tuple[pa.RecordBatch, Visits]:
        return router.route(alias, batch, spread)

    return _packer(number, router.graph.schemas[alias], route, labels, most_bytes)


def _packer(number: int, schema: pa.Schema, route: Route, labels: Sequence[int] | None, most_bytes: int) -> Rewrite:
    names = None if labels is None else np.array(labels, np.int32)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        position = 0
        seq = partition << 40
        for batch in (as_planned(rows, schema) for rows in collected(batches, most_bytes)):
            # Positions are offset by partition, or every partition would send its first rows to the same cells.
            spread = np.arange(position, position + batch.num_rows) + partition * 7919
            position += batch.num_rows
            for cells, payloads in by_cell(*route(batch, spread, partition), most_bytes):
                numbers = cells if names is None else names[cells]
                yield packed_rows(numbers, number, range(seq, seq + len(payloads)), payloads)
                seq += len(payloads)
        freeze_modules()

    return pack


def with_all(visits: Visits, rows: int, cell: int) -> Visits:
    """The visits, plus one of this cell for every row without a visit."""
    visiting = np.zeros(rows, np.bool_)
    visiting[visits.rows] = True
    missing = np.flatnonzero(~visiting)
    cells = np.full(len(missing), cell, np.int32)
    return Visits(np.concatenate([visits.rows, missing]), np.concatenate([visits.cells, cells]))


def by_cell(
    batch: pa.RecordBatch, visits: Visits, most_bytes: int = PACK_BYTES
) -> Iterator[tuple[NDArray[np.int32], list[pa.Buffer]]]:
    """The rows of each cell as bytes, a few cells at a time, because every row may visit many of them."""
    order = visits.by_cell()
    cells, starts = np.unique(visits.cells[order], return_index=True)
    bounds = np.append(starts, len(order))
    for first, last, _ in chunk_ranges(np.diff(bounds), len(order), fitting_rows(batch, most_bytes=most_bytes)):
        ends = bounds[first : last + 1]
        dealt = take_rows(batch, visits.rows[order[ends[0] : ends[-1]]])
        yield cells[first:last], [to_bytes(dealt.slice(s - ends[0], e - s)) for s, e in pairwise(ends)]


def packed_rows(cells: NDArray[np.int32], side: int, seq: Sequence[int], payloads: list[pa.Buffer]) -> pa.RecordBatch:
    columns = [
        pa.array(cells, pa.int32()),
        pa.array(np.full(len(payloads), side, np.int8)),
        pa.array(seq, pa.int64()),
        pa.array([payload.to_pybytes() for payload in payloads], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_PACKED)


def unpack_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Packed rows as batches, each with its cell and input number."""
    for batch in batches:
        cells, numbers = batch.column("cell").to_pylist(), batch.column("side").to_pylist()
        for cell, number, payload in zip(cells, numbers, batch.column("payload"), strict=True):
            yield cell, number, from_bytes(payload.as_buffer())


def collected(
    batches: Iterator[pa.RecordBatch], most_bytes: int = PACK_BYTES, most_rows: int = PACK_ROWS
) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches, so that packed rows are large enough even with many cells."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if rows and size + batch.nbytes > most_bytes:
            yield _together(waiting)
            rows = size = 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        del batch  # freed while the caller works on it
        if rows >= most_rows or size >= most_bytes:
            yield _together(waiting)
            rows = size = 0
    if rows:
        yield _together(waiting)


def _together(waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate the batches and clear the list."""
    whole = concatenate(waiting)
    waiting.clear()
    return whole


def as_planned(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the plan's names and types. Spark's settings (time zone, large types) may change Arrow's types."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return put_together(columns, schema, batch.num_rows)
