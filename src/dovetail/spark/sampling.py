"""A look at the keys before the join: how many rows, and which keys are heavy.

One pass over the key columns of each side; every task returns its row count and a uniform sample of its key hashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from dovetail.batch import Side
from dovetail.condition import Condition, columns_of
from dovetail.routers.hash import Heavy
from dovetail.spark.packing import Rewrite, as_planned
from dovetail.spark.workers import settle
from dovetail.state.hash_keys import HashKeys

SAMPLE = 4096  # hashes kept by one task
FEWEST = 20  # times a key must be in the sample to be believed heavy
SAMPLED = "rows bigint, hashes binary"
MEASURED_ROWS = 1000


@dataclass(frozen=True, slots=True)
class SideSample:
    """What one pass has shown of a side."""

    rows: int
    counts: dict[int, float]  # estimated rows by key hash, for keys that occur often in the sample

    @classmethod
    def unknown(cls) -> SideSample:
        return cls(0, {})


def sample_side(frame: DataFrame, condition: Condition, side: Side) -> SideSample:
    """Count the rows of a side, and estimate how often its frequent keys occur."""
    if not condition.equalities:
        return SideSample(frame.count(), {})
    schema = condition.schema(side)
    needed = {c.name for p in condition.equalities for c in columns_of((p.left, p.right)[side])}
    needed |= {c.name for f in condition.filters[side] for c in columns_of(f)}
    positions = [i for i, name in enumerate(schema.names) if name in needed]
    keys = pa.schema([schema.field(i) for i in positions])
    selected = frame.select(*(frame.columns[i] for i in positions))
    rows, counts = 0, Counter[int]()
    for row in selected.mapInArrow(sampler(condition, side, keys), SAMPLED).collect():
        sample = np.frombuffer(row.hashes, np.int64)
        rows += row.rows
        values, times = np.unique(sample, return_counts=True)
        often = times >= FEWEST
        weight = row.rows / len(sample) if len(sample) else 0
        for value, count in zip(values[often].tolist(), times[often].tolist(), strict=True):
            counts[value] += count * weight
    return SideSample(rows, dict(counts))


def sampler(condition: Condition, side: Side, schema: pa.Schema) -> Rewrite:
    keys = HashKeys(condition)

    def sample(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rng = np.random.default_rng(0)
        rows = 0
        hashes, ranks = np.empty(0, np.int64), np.empty(0)
        for batch in batches:
            new = keys.hash(side, as_planned(batch, schema)).hashes
            rows += len(new)
            hashes, ranks = np.concatenate([hashes, new]), np.concatenate([ranks, rng.random(len(new))])
            if len(hashes) > SAMPLE:  # the rows with the smallest random ranks are a uniform sample
                keep = np.argpartition(ranks, SAMPLE)[:SAMPLE]
                hashes, ranks = hashes[keep], ranks[keep]
        yield pa.RecordBatch.from_pydict({"rows": [rows], "hashes": [hashes.tobytes()]})
        settle()

    return sample


def measured_row_bytes(frame: DataFrame) -> int:
    """The average size of a row, by a look at the first ones."""
    found = frame.limit(MEASURED_ROWS).mapInArrow(_measure, "rows bigint, bytes bigint").collect()
    rows = sum(row.rows for row in found)
    return -(-sum(row.bytes for row in found) // rows) if rows else 0


def _measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "bytes": [batch.nbytes]})


def heavy_keys(left: SideSample, right: SideSample, cells: int) -> dict[int, Heavy]:
    """Keys with more rows than half a cell should have, and over how many cells to split them."""
    fair = max(1.0, (left.rows + right.rows) / cells)
    heavy = {}
    for key in left.counts.keys() | right.counts.keys():
        ours, theirs = left.counts.get(key, 0.0), right.counts.get(key, 0.0)
        parts = min(cells, round(2 * (ours + theirs) / fair))
        if parts > 1:
            heavy[key] = Heavy(Side.LEFT if ours >= theirs else Side.RIGHT, parts)
    return heavy
