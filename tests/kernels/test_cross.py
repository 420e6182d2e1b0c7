import operator

import numpy as np
import pytest
from tests.seed import generator

from dovetail.kernels.cross import EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, NOT_EQUAL, cross_join

MEANING = {
    EQUAL: operator.eq,
    NOT_EQUAL: operator.ne,
    LESS: operator.lt,
    LESS_EQUAL: operator.le,
    GREATER: operator.gt,
    GREATER_EQUAL: operator.ge,
}


@pytest.mark.parametrize("first", MEANING)
@pytest.mark.parametrize("second", MEANING)
@pytest.mark.parametrize("capacity", [7, 1000])
def test_all_pairs_that_satisfy_both_predicates(first: int, second: int, capacity: int) -> None:
    rng = generator(first * 6 + second)
    left, right = rng.integers(0, 4, (2, 9)), rng.integers(0, 4, (2, 7))
    pairs: list[tuple[int, int]] = []
    start = 0
    while start < 9:
        lefts, rights, start = cross_join(left, right, np.array([first, second]), start, capacity)
        pairs += zip(lefts.tolist(), rights.tolist(), strict=True)
    assert pairs == [
        (i, j)
        for i in range(9)
        for j in range(7)
        if MEANING[first](left[0, i], right[0, j]) and MEANING[second](left[1, i], right[1, j])
    ]


def test_without_predicates_it_is_the_cross_product() -> None:
    nothing = np.empty((0, 3), np.int64)
    lefts, _, end = cross_join(nothing, nothing, np.empty(0, np.int64), 0, 9)
    assert (len(lefts), end) == (9, 3)
