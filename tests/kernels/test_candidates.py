from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.brute_force import as_check, check_join
from tests.seed import generator

from dovetail.kernels import candidates
from dovetail.kernels.candidates import ASK, Bytes, Candidates, Visits, blocks, right_counts
from dovetail.kernels.windows import Rows

LEFTS, RIGHTS = 5, 40


@given(st.data(), st.sampled_from([1, 2, 5, 17, 1000]), st.sampled_from([1, 10, 1000]), st.sampled_from([0, 1, 16]))
def test_visits_in_blocks(data: st.DataObject, capacity: int, block: int, keep: int) -> None:
    """Boxes and points in any order, with flags for yes, no and check."""
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = generator(seed)
    density = data.draw(st.sampled_from([0.0, 0.02, 0.5, 1.0]))
    truth = rng.random((LEFTS, RIGHTS)) < density
    doubtful = rng.random((LEFTS, RIGHTS)) < data.draw(st.sampled_from([0.0, 0.3]))
    left, right = rng.permutation(LEFTS).astype(np.int32), rng.permutation(RIGHTS).astype(np.int32)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, RIGHTS), max_size=3))), RIGHTS]
    runs = [(box, a, b) for a, b in pairwise(cuts) for box in range(LEFTS) if a < b]
    visits = Visits(*(np.array(column, np.int32) for column in zip(*runs, strict=True)))

    def flag(boxes: Rows, firsts: Rows, lasts: Rows, flags: Bytes, counts: Rows) -> None:
        at = 0
        for v, (box, first, last) in enumerate(zip(boxes, firsts, lasts, strict=True)):
            row, columns = left[box], right[first:last]
            found = np.where(doubtful[row, columns], ASK, truth[row, columns])
            flags[at : at + len(columns)] = found
            counts[v] = (found > 0).sum()
            at += len(columns)

    def good(i: int, j: int) -> bool:
        return bool(truth[i, j])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "BLOCK", block)
        patch.setattr(candidates, "KEEP", keep)
        join = Candidates(left, right, lambda: blocks(visits), flag, LEFTS, RIGHTS, as_check(good))
        check_join(candidates, join, (LEFTS, RIGHTS), good, capacity)
        check_join(candidates, join, (LEFTS, RIGHTS), good, capacity)  # now with cached flags
        assert right_counts(join).tolist() == truth.sum(axis=0).tolist()


def test_a_few_points_are_enough_where_most_match() -> None:
    looked = 0

    def flag(boxes: Rows, firsts: Rows, lasts: Rows, flags: Bytes, counts: Rows) -> None:
        nonlocal looked
        looked += int((lasts - firsts).sum())
        flags[:] = 1
        counts[:] = lasts - firsts

    rows = np.arange(1000, dtype=np.int32)
    visits = Visits(rows, np.zeros_like(rows), np.full_like(rows, 1000))
    join = Candidates(rows, rows, lambda: blocks(visits), flag, 1000, 1000)
    assert candidates.row_exists(join).all()
    assert looked == 1000 * candidates.FIRST_POINTS
