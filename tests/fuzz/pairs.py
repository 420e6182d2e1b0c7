"""Results of a join as pairs of row numbers, and a check that values are those of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tests.fuzz.cases import Case

from dovetail.core.tables import arrow_table

ONE_SIDED = ("left_semi", "left_anti")
SHOWN = 100  # number of rows whose values are checked


def pairs_of(case: Case, found: pa.Table) -> NDArray[np.int64]:
    """Pairs of row numbers, each encoded as one number; -1 stands for a missing row."""
    left = found["row"].fill_null(-1).to_numpy()
    right = -1 if case.how in ONE_SIDED else found["row_right"].fill_null(-1).to_numpy()
    return np.asarray(left * pair_width(case) + right)


def pair_width(case: Case) -> int:
    return int(case.right.num_rows) + 1


def check_pairs(found: NDArray[np.int64], expected: NDArray[np.int64]) -> None:
    """Check that both are the same multiset."""
    pairs = np.union1d(found, expected)
    surplus = _times(found, pairs) - _times(expected, pairs)
    assert not (surplus < 0).any(), f"missing pairs: {pairs[surplus < 0].tolist()}"
    assert not (surplus > 0).any(), f"pairs that do not belong there: {pairs[surplus > 0].tolist()}"


def _times(values: NDArray[np.int64], pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.bincount(np.searchsorted(pairs, values), minlength=len(pairs))


def check_values(case: Case, found: pa.Table) -> None:
    """Check that the result has the columns of both sides unchanged, with views as plain types."""
    some = found.slice(0, SHOWN)
    expected = picked(case.left, some["row"])
    types = [*arrow_table(case.left).schema.types]
    if case.how not in ONE_SIDED:
        expected += picked(case.right, some["row_right"])
        types += arrow_table(case.right).schema.types
    assert found.schema.types == types
    assert repr([column.to_pylist() for column in some.columns]) == repr(expected)


def picked(table: pa.Table, rows: pa.ChunkedArray) -> list[list[Any]]:
    """The values of each column in these rows."""
    columns = [column.to_pylist() for column in table.columns]
    return [[None if row is None else column[row] for row in rows.to_pylist()] for column in columns]
