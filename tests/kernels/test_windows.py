import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.seed import generator

from dovetail.kernels.band import prepare
from dovetail.kernels.windows import apart, row_sums, smallest_partners

keys = st.lists(st.integers(-8, 8), max_size=15)
rows = st.lists(st.tuples(st.integers(-8, 8), st.integers(-100, 100)), max_size=15)


@given(keys, rows, st.integers(0, 5))
def test_aggregates_over_the_partners(left: list[int], right: list[tuple[int, int]], width: int) -> None:
    join = prepare(np.array(left, np.int64), np.array([key for key, _ in right], np.int64), -width, width)
    partners = [[value for other, value in right if abs(key - other) <= width] for key in left]
    values = np.array([value for _, value in right], np.int64)
    assert row_sums(join, values).tolist() == [sum(p) for p in partners]
    assert row_sums(join, values / 4).tolist() == [sum(p) / 4 for p in partners]
    for found, choose in ((smallest_partners(join, values), min), (smallest_partners(join, ~values), max)):
        chosen = [None if row < 0 else int(values[row]) for row in found]
        assert chosen == [choose(p) if p else None for p in partners]


def test_sums_do_not_cancel() -> None:
    values = np.array([1e16, 1.0, 1.0, 3.0, -1e16, 0.1, 0.2])
    join = prepare(np.arange(7), np.arange(7), -1, 0)
    assert row_sums(join, values).tolist() == [1e16 + 1.0, 2.0, 4.0, 3.0 - 1e16, 0.1 - 1e16, 0.1 + 0.2, 0.2]


def test_infinities_and_nan_stay_in_their_windows() -> None:
    values = np.array([1.0, math.inf, 2.0, -math.inf, math.nan, 3.0, 4.0])
    sums = row_sums(prepare(np.arange(7), np.arange(7), -2, 0), values).tolist()
    assert sums[0] == math.inf
    assert all(math.isnan(s) for s in sums[1:5])
    assert sums[5:] == [7.0, 4.0]


def test_sums_that_are_too_large() -> None:
    join = prepare(np.arange(3), np.arange(3), -1, 0)
    assert row_sums(join, np.array([1.5e308, 1.5e308, -1.5e308])).tolist() == [math.inf, 0.0, -1.5e308]
    assert row_sums(join, np.array([2**62, 2**62 - 1, -(2**63)])).tolist() == [2**63 - 1, -(2**62) - 1, -(2**63)]
    with pytest.raises(OverflowError, match="does not fit in 64 bits"):
        row_sums(join, np.array([2**62, 2**62, 0]))


def test_only_pairs_from_different_sources_are_left() -> None:
    rng = generator(0)
    lefts, rights = (rng.integers(0, 50, 300).astype(np.int32) for _ in range(2))
    left_sources, right_sources = (rng.integers(0, 3, 50).astype(np.int16) for _ in range(2))
    wanted = left_sources[lefts] != right_sources[rights]
    expected = lefts[wanted].tolist(), rights[wanted].tolist()
    found = apart(lefts, rights, left_sources, right_sources)
    assert (found[0].tolist(), found[1].tolist()) == expected
