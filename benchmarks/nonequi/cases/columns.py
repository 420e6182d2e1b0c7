"""Columns that tables of several cases have: each has an id, a value, and what it is joined by."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

SPACING = 100  # of positions, on average: a table of n rows has positions in [0, 100 n)


def side(prefix: str, columns: Mapping[str, np.ndarray], rng: np.random.Generator) -> pa.Table:
    """A table whose columns have this prefix, with the number of the row and a whole value below 1,000."""
    rows = len(next(iter(columns.values())))
    every = {"id": np.arange(rows), **columns, "v": rng.integers(0, 1000, rows)}
    return pa.table({f"{prefix}_{name}": column for name, column in every.items()})


def intervals(prefix: str, start: np.ndarray, length: np.ndarray, rng: np.random.Generator) -> pa.Table:
    return side(prefix, {"s": start, "e": start + length}, rng)


def positions(rows: int, rng: np.random.Generator, count: int | None = None) -> np.ndarray:
    """Places in the domain of a table of `rows` rows."""
    return rng.integers(0, SPACING * rows, rows if count is None else count)
