"""All pairs of two batches that satisfy a condition, whatever the condition is.

Comparisons of fixed-width keys run as codes in a compiled loop; everything else is evaluated on the pairs that survive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.batch import Rows, Side
from dovetail.condition import Condition, Equal, Expression, Less, NotEqual, evaluate, matching, passing
from dovetail.kernels import cross as kernels
from dovetail.keys import is_fixed, order_codes

OPERATORS = {
    "=": kernels.EQUAL,
    "!=": kernels.NOT_EQUAL,
    "<": kernels.LESS,
    "<=": kernels.LESS_EQUAL,
    ">": kernels.GREATER,
    ">=": kernels.GREATER_EQUAL,
}
MOST_PAIRS = 1 << 18  # pairs looked at before they are yielded


class Comparable(NamedTuple):
    """A batch made ready: its rows that can match at all, and their codes, one line per compared key."""

    batch: pa.RecordBatch
    rows: Rows
    codes: NDArray[np.int64]


class Cross:
    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        compared: list[tuple[Expression, str, Expression]] = []
        covered: set[Expression] = set()
        for p in condition.predicates:
            match p:
                case Equal(left, right):
                    operator = "="
                case NotEqual(left, right):
                    operator = "!="
                case Less(left, operator, right):
                    pass
                case _:
                    continue
            if left.type is not None and is_fixed(left.type):
                compared.append((left, operator, right))
                covered.update(p.source)
        self._keys = [(left, right) for left, _, right in compared]
        self._operators = np.array([OPERATORS[o] for _, o, _ in compared], np.int64)
        self._checks = tuple(c for c in condition.conjuncts if c not in covered)

    def prepare(self, side: Side, batch: pa.RecordBatch) -> Comparable:
        sides = (batch, None) if side is Side.LEFT else (None, batch)
        alive = passing(self._condition.filters[side], side, batch)
        lines = []
        for pair in self._keys:
            codes = order_codes(evaluate(pair[side], *sides))
            if codes.valid is not None:
                alive = codes.valid if alive is None else alive & codes.valid
            lines.append(codes.values)
        rows = np.arange(batch.num_rows) if alive is None else np.flatnonzero(alive)
        matrix = np.array(lines, np.int64).reshape(len(lines), batch.num_rows)
        return Comparable(batch, rows, np.ascontiguousarray(matrix[:, rows]))

    def pairs(self, left: Comparable, right: Comparable) -> Iterator[tuple[Rows, Rows]]:
        """Matching (left row, right row), in pieces of bounded size."""
        room = max(MOST_PAIRS, len(right.rows))
        start = 0
        while start < len(left.rows) and len(right.rows):
            lefts, rights, start = kernels.cross_join(left.codes, right.codes, self._operators, start, room)
            left_rows, right_rows = left.rows[lefts], right.rows[rights]
            if self._checks and len(left_rows):
                good = matching(self._checks, left.batch, left_rows, right.batch, right_rows)
                left_rows, right_rows = left_rows[good], right_rows[good]
            if len(left_rows):
                yield left_rows, right_rows
