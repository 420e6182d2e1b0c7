"""Tasks of a progressive join: they join rows, and write results to a file or sum them up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.core.rows import Side
from dovetail.execution.at_rest import Work
from dovetail.execution.out_of_core import Chunked
from dovetail.storage.blocks import BlockStore
from dovetail.storage.open_store import Place

GIVEN = "matches bigint, block string, sums array<double>"
ARROW_GIVEN = pa.schema([("matches", pa.int64()), ("block", pa.string()), ("sums", pa.list_(pa.float64()))])


WAVE_S = 2.0  # intended duration of a wave, once the first ones have shown the speed


def next_size(size: int, spent: float) -> int:
    """Double the number of parts of a wave until a wave takes long enough."""
    if not spent:
        return size
    return max(1, min(2 * size, round(size * WAVE_S / spent) if spent > WAVE_S / 2 else 2 * size))


@dataclass(slots=True)
class Given:
    """The outcome of a piece of work."""

    values: list[float]  # number of matches, then the partial aggregates
    block: dict[str, Any] | None = None  # its results, until all are emitted
    handed_out: int = 0  # number of batches
    handed_rows: int = 0

    @classmethod
    def from_row(cls, row: Any) -> Given:
        return cls([float(row.matches), *row.sums], None if row.block is None else json.loads(row.block))


@dataclass(frozen=True, slots=True)
class WaveWork:
    work: Work
    sums: int | None  # number of partial aggregates; None: results are listed
    directory: Place  # where results are written
    chunk_bytes: int  # of a side, in memory at once

    def meet(self, first: Side, rows: Iterator[tuple[Side, pa.RecordBatch]]) -> Mapping[str, Any]:
        """Join all rows of one side, then all of the other. Returns a row of the schema GIVEN."""
        spilled = BlockStore()
        try:
            results = Chunked(self.work, first, spilled, self.chunk_bytes).run(rows)
            if self.sums is None:
                return write_results(BlockStore(self.directory), results)
            return {"matches": 0, "block": None, "sums": _sum_columns(results, self.sums)}
        finally:
            spilled.close()


def write_results(store: BlockStore, results: Iterator[pa.RecordBatch]) -> dict[str, Any]:
    """Write results as a block, page by page. Returns a row of the schema GIVEN."""
    paged, matches = None, 0
    for batch in results:
        paged = paged or store.open_paged(batch.schema, "results")
        paged.write(batch)
        matches += batch.num_rows
    block = None if paged is None else json.dumps(paged.close().to_json())
    return {"matches": matches, "block": block, "sums": []}


def _sum_columns(results: Iterator[pa.RecordBatch], columns: int) -> list[float]:
    """The sums of the partial aggregates. Without results, they are zero."""
    batches = list(results)
    if not batches:
        return [0.0] * columns
    return [float(pc.sum(column.cast(pa.float64())).as_py() or 0.0) for column in pa.Table.from_batches(batches)]
