"""DINER in process: the cost of an arrival when memory suffices."""

from __future__ import annotations

import pyarrow as pa

import dovetail
from benchmarks import hash_join


def unique_keys(tables: hash_join.Tables) -> tuple[int, int]:
    steps = dovetail.progressive(tables.left, tables.right, "l.k = r.k", algorithm="diner", memory="4GB")
    result = pa.Table.from_batches([step.batch for step in steps])
    return result.num_rows, hash_join.digest(result)
