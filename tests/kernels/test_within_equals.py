"""Inequalities and bands within groups of equal keys, against the definition."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.brute_force import check_join, pairs_where
from tests.seed import generator

from dovetail.core import threads
from dovetail.core.threads import allow_threads
from dovetail.kernels import cross, equality, within_equals

numbers = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1]))
rows = st.lists(st.tuples(st.integers(0, 2), numbers, numbers), max_size=20)
COMPARE: dict[int, Callable[[int, int], bool]] = {
    cross.LESS: lambda a, b: a < b,
    cross.LESS_EQUAL: lambda a, b: a <= b,
    cross.GREATER: lambda a, b: a > b,
    cross.GREATER_EQUAL: lambda a, b: a >= b,
}
Row = tuple[int, int, int]


def columns(rows: list[Row]) -> list[np.ndarray]:
    return [np.array([row[i] for row in rows], np.int64) for i in range(3)]


@pytest.mark.parametrize("operator", COMPARE)
@given(left=rows, right=rows, capacity=st.integers(1, 40))
def test_one_inequality(left: list[Row], right: list[Row], capacity: int, operator: int) -> None:
    (keys, mine, _), (other_keys, theirs, _) = columns(left), columns(right)
    join = within_equals.with_inequality(equality.prepare(keys, other_keys), mine, theirs, operator)

    def good(i: int, j: int) -> bool:
        return left[i][0] == right[j][0] and COMPARE[operator](left[i][1], right[j][1])

    check_join(equality, join, (len(left), len(right)), good, capacity)


@given(rows, rows, st.sampled_from(list(COMPARE)), st.sampled_from(list(COMPARE)), st.integers(1, 40))
def test_several_inequalities(left: list[Row], right: list[Row], first: int, second: int, capacity: int) -> None:
    (keys, a, b), (other_keys, c, d) = columns(left), columns(right)
    join = within_equals.check(equality.prepare(keys, other_keys), [(a, c), (b, d)], [first, second])

    def good(i: int, j: int) -> bool:
        same = left[i][0] == right[j][0]
        return same and COMPARE[first](left[i][1], right[j][1]) and COMPARE[second](left[i][2], right[j][2])

    check_join(within_equals, join, (len(left), len(right)), good, capacity)
    expected = pairs_where(len(left), len(right), good)
    pieces = [pair for part in within_equals.split(join, 3) for pair in within_equals.pairs(part, capacity)]
    found = [pair for lefts, rights in pieces for pair in zip(lefts.tolist(), rights.tolist(), strict=True)]
    assert sorted(found) == expected


bounds = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**64), -(2**63), 2**63 - 1, 2**63, 2**64]))


@given(rows, rows, bounds, bounds)
def test_a_band(left: list[Row], right: list[Row], low: int, high: int) -> None:
    (keys, mine, _), (other_keys, theirs, _) = columns(left), columns(right)
    join = within_equals.with_band(equality.prepare(keys, other_keys), mine, theirs, low, high)

    def good(i: int, j: int) -> bool:
        return left[i][0] == right[j][0] and low <= left[i][1] - right[j][1] <= high

    check_join(equality, join, (len(left), len(right)), good, 7)


@pytest.mark.parametrize("keys", [3, 400])
@pytest.mark.parametrize("longest", [4, 10_000])
@pytest.mark.parametrize("number", [1, 5])
def test_ranges_are_sorted_one_by_one_or_all_at_once(
    keys: int, longest: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "RANGE", 16)
    monkeypatch.setattr(within_equals, "LONG", longest)
    rng = generator(2)
    (left, mine), (right, theirs) = ((rng.integers(0, keys, rows), rng.integers(0, 50, rows)) for rows in (300, 400))
    same = left[:, None] == right
    difference = mine[:, None] - theirs
    with allow_threads(number):
        join = equality.prepare(left, right)
        less = within_equals.with_inequality(join, mine, theirs, cross.LESS)
        band = within_equals.with_band(join, mine, theirs, -3, 5)
        checked = within_equals.check(join, [(mine, theirs)], [cross.LESS])
    for kernels, found, expected in (
        (equality, less, same & (difference < 0)),
        (equality, band, same & (difference >= -3) & (difference <= 5)),
        (within_equals, checked, same & (difference < 0)),
    ):
        listed = [pair for lefts, rights in kernels.pairs(found) for pair in zip(lefts, rights, strict=True)]
        assert sorted(listed) == list(zip(*np.nonzero(expected), strict=True))
