"""Columns shared by the tables of several cases: each table has an id, a value, and its join columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

SPACING = 100  # average distance of positions: a table of n rows has positions in [0, 100 n)


def side(prefix: str, columns: Mapping[str, np.ndarray], rng: np.random.Generator) -> pa.Table:
    """A table with row numbers and integer values below 1,000; its column names have this prefix."""
    rows = len(next(iter(columns.values())))
    every = {"id": np.arange(rows), **columns, "v": rng.integers(0, 1000, rows)}
    return pa.table({f"{prefix}_{name}": column for name, column in every.items()})


def intervals(prefix: str, start: np.ndarray, length: np.ndarray, rng: np.random.Generator) -> pa.Table:
    return side(prefix, {"s": start, "e": start + length}, rng)


def positions(rows: int, rng: np.random.Generator, count: int | None = None) -> np.ndarray:
    """Positions in the domain of a table with `rows` rows."""
    return rng.integers(0, SPACING * rows, rows if count is None else count)
