import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.inequalities import EXTREMES, MEANING, check_pairs, check_summaries, table
from tests.seed import generator

from dovetail.kernels import one_inequality, sorting
from dovetail.kernels.cross import EQUAL, GREATER, LESS, NOT_EQUAL
from dovetail.kernels.one_inequality import pairs, prepare, row_sums

SIZES = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 90), (90, 1), (2, 40), (30, 30)]


@pytest.mark.parametrize("op", MEANING)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("spread", [1, 4, 2**62])
def test_agrees_with_the_definition(op: int, sizes: tuple[int, int], spread: int) -> None:
    rng = generator(op)
    left, right = (rng.integers(-spread, spread, size) for size in sizes)
    join, good = prepare(left, right, op), table(left, right, op)
    check_summaries(one_inequality, join, good, rng.integers(-3, 4, sizes[1]))
    for capacity in (1, 2, 7, 2000):
        check_pairs(one_inequality, join, good, capacity)


@given(
    st.lists(st.sampled_from(EXTREMES), max_size=12),
    st.lists(st.sampled_from(EXTREMES), max_size=12),
    st.sampled_from(list(MEANING)),
    st.integers(1, 30),
)
def test_extreme_codes(left: list[int], right: list[int], op: int, capacity: int) -> None:
    lefts, rights = np.array(left, np.int64), np.array(right, np.int64)
    join, good = prepare(lefts, rights, op), table(lefts, rights, op)
    check_pairs(one_inequality, join, good, capacity)
    check_summaries(one_inequality, join, good, np.arange(len(right)) % 3)


def test_of_some_rows_only() -> None:
    rng = generator(0)
    left, right = rng.integers(0, 9, 20), rng.integers(0, 9, 20)
    left_rows, right_rows = np.array([3, 17, 4], np.int32), np.array([9, 0, 1, 12], np.int32)
    for op in MEANING:
        good = table(left[left_rows], right[right_rows], op)
        check_pairs(one_inequality, prepare(left, right, op, left_rows, right_rows), good, 100)


def test_chunks_are_as_large_as_asked_for() -> None:
    join = prepare(np.zeros(10, np.int64), np.ones(10, np.int64), LESS)
    assert [len(lefts) for lefts, _ in pairs(join, 30)] == [30, 30, 30, 10]
    assert [len(lefts) for lefts, _ in pairs(join, 100)] == [100]
    with pytest.raises(ValueError, match="room for at least one"):
        next(pairs(join, 0))


def test_pairs_are_32_bits_wide_where_that_is_enough() -> None:
    [(lefts, rights)] = pairs(prepare(np.array([2, 1]), np.array([0]), GREATER))
    assert lefts.dtype == rights.dtype == np.int32


def test_wide_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sorting, one_inequality):
        monkeypatch.setattr(module, "row_type", lambda rows: np.int64)
    rng = generator(0)
    left, right = rng.integers(0, 9, 20), rng.integers(0, 9, 20)
    join = prepare(left, right, LESS)
    check_pairs(one_inequality, join, table(left, right, LESS), 50)
    assert all(rows.dtype == np.int64 for chunk in pairs(join) for rows in chunk)


def test_an_infinity_is_in_the_sums_that_it_belongs_to_and_no_other() -> None:
    join = prepare(np.array([0, 1, 2]), np.array([1, 2, 3]), LESS)
    assert row_sums(join, np.array([np.inf, 1.0, 2.0])).tolist() == [np.inf, 3.0, 2.0]


@pytest.mark.parametrize("op", [EQUAL, NOT_EQUAL, 6])
def test_other_operators_are_refused(op: int) -> None:
    with pytest.raises(ValueError, match="an inequality is"):
        prepare(np.arange(2), np.arange(2), op)
