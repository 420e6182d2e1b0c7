"""Compares the answers of contenders by the number of rows and a checksum that does not depend on their order.

The checksum is the sum of (left + 1) * (right + 2) modulo a prime: a wrong pairing of rows changes it, and it fits into
64 bits. A missing right value counts as -1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nonequi.question import Pairs, Question, WindowSums

PRIME = 1_000_003


class Answer(NamedTuple):
    rows: int
    checksum: int | None  # None if rows were only counted


def checked_columns(question: Question) -> tuple[str, str | None]:
    match question:
        case WindowSums():
            return "n", "total"
        case Pairs(how="left_anti"):
            return "l_id", None
        case _:
            return "l_id", "r_id"


def checksum_sql(question: Question) -> str:
    """Two columns of a query that computes the answer, for systems that keep their results on their side."""
    left, right = checked_columns(question)
    other = f"coalesce({right}, -1)" if right else "-1"
    return f"count(*), coalesce(sum((coalesce({left}, -1) + 1) * ({other} + 2) % {PRIME}), 0)"


def answer_of(result: pa.Table, question: Question) -> Answer:
    left, right = checked_columns(question)
    first = _integers(result[left])
    second = _integers(result[right]) if right else np.full(len(first), -1)
    return Answer(len(first), int(((first + 1) * (second + 2) % PRIME).sum()))


def _integers(column: Any) -> np.ndarray:
    """Convert to integers: some systems return floats if values are missing."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    return np.asarray(pc.fill_null(pc.cast(column, pa.int64()), -1).to_numpy(zero_copy_only=False))
