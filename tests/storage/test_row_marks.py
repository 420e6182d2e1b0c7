"""Marks of rows, compared with a list."""

import numpy as np
import pytest
from tests.seed import seeded

from dovetail.storage.row_marks import RowMarks


@pytest.mark.parametrize("counted", [False, True])
def test_marks_follow_their_rows(counted: bool) -> None:
    rng = seeded(counted)
    marks, expected = RowMarks(counted), list[int]()
    for _ in range(200):
        new = [rng.choice([0, 0, 1, 3]) for _ in range(rng.choice([0, 1, 3, 20]))]
        marks.append(np.array(new, np.int32))
        expected += new if counted else [min(1, mark) for mark in new]
        if expected:
            rows = np.array(rng.choices(range(len(expected)), k=4))
            marks.add(rows)
            for row in rows.tolist():
                expected[row] = expected[row] + 1 if counted else 1
            lowered = np.array(rng.sample(range(len(expected)), k=1))
            marks.lower(lowered)
            expected[lowered[0]] = expected[lowered[0]] // 2 if counted else 0
            gone = np.array([rng.random() < 0.1 for _ in expected])
            marks.remove(gone)
            expected = [mark for mark, left in zip(expected, gone.tolist(), strict=True) if not left]
        assert marks.all().tolist() == expected
        assert marks.nbytes_with(10) >= marks.nbytes
        assert counted or marks.nbytes < 100
