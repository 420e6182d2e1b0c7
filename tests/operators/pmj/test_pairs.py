import numpy as np
import pytest

from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.errors import InputError
from dovetail.operators.pmj.pairs import Partnered


def test_marks_are_kept_while_sides_grow() -> None:
    partnered = Partnered(JoinType.FULL)
    rng = np.random.default_rng(0)
    marked: set[int] = set()
    for rows in (1, 9, 70, 1000):
        partnered.grow(Side.RIGHT, rows)
        new = rng.integers(0, rows, rows // 3 + 1)
        partnered.mark(Side.RIGHT, new)
        marked |= set(new.tolist())
        found = partnered.has(Side.RIGHT, np.arange(rows))
        assert np.flatnonzero(found).tolist() == sorted(marked)
    assert partnered.nbytes <= 300


def test_a_row_is_first_once() -> None:
    partnered = Partnered(JoinType.LEFT_SEMI)
    partnered.grow(Side.LEFT, 10)
    assert partnered.first(Side.LEFT, np.array([3, 5, 3, 1])).tolist() == [0, 1, 3]
    assert partnered.first(Side.LEFT, np.array([5, 2])).tolist() == [1]
    assert not partnered.watches(Side.RIGHT)


def test_join_types_must_be_known() -> None:
    with pytest.raises(InputError, match="left_semi"):
        JoinType.read("cross")
