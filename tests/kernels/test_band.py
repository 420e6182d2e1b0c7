import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.brute_force import as_check, check_join
from tests.seed import generator

from dovetail.kernels import windows
from dovetail.kernels.band import DOUBLE_STEP, SINGLE_STEP, prepare, prepare_checked, prepare_floats
from dovetail.kernels.windows import Flags, Rows

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # plain Python warns where doubles overflow

LEAST, MOST = -(2**63), 2**63 - 1
ODD = [0.0, -0.0, 1.0, -1.0, 0.1, 0.3, 0.1 + 0.2, 1e16, 1e16 + 2, 1e-310, math.inf, -math.inf, math.nan, 1.7e308]

codes = st.lists(st.integers(-6, 6) | st.sampled_from([LEAST, LEAST + 1, MOST - 1, MOST, 2**62]), max_size=12)
lows = st.integers(-5, 5) | st.integers(-(2**65), 2**65)
widths = st.integers(-1, 6) | st.integers(0, 2**66)
doubles = st.lists(st.sampled_from(ODD) | st.integers(-4, 4).map(float) | st.floats(), max_size=12)
bounds = st.sampled_from([-1.0, 0.0, 0.1, 0.2, 1.0, 2.0, 3.5, 1e-310, 1e308]) | st.floats(-10, 10)
capacities = st.sampled_from([1, 2, 3, 7, 1000])


@given(codes, codes, lows, widths, capacities)
def test_codes(left: list[int], right: list[int], low: int, width: int, capacity: int) -> None:
    join = prepare(np.array(left, np.int64), np.array(right, np.int64), low, low + width)
    check_join(windows, join, (len(left), len(right)), lambda i, j: low <= left[i] - right[j] <= low + width, capacity)


@given(doubles, doubles, bounds, bounds, st.booleans(), st.booleans(), capacities)
def test_doubles_as_computed(
    left: list[float], right: list[float], low: float, high: float, low_closed: bool, high_closed: bool, capacity: int
) -> None:
    def good(i: int, j: int) -> bool:
        difference = left[i] - right[j]
        above = difference >= low if low_closed else difference > low
        return above and (difference <= high if high_closed else difference < high)

    join = prepare_floats(np.array(left), np.array(right), low, high, low_closed, high_closed)
    check_join(windows, join, (len(left), len(right)), good, capacity)


def larger(a: float, b: float) -> bool:
    """Spark's order, in which NaN equals NaN and is larger than everything."""
    return not math.isnan(b) and (math.isnan(a) or a > b)


SPELLINGS: dict[str, Callable[[float, float, float, float], bool]] = {
    "x - y": lambda x, y, low, high: not larger(low, x - y) and not larger(x - y, high),
    "x <= y + high": lambda x, y, low, high: not larger(y + low, x) and not larger(x, y + high),
    "x < y + high": lambda x, y, low, high: larger(x, y + low) and larger(y + high, x),
    "x - high <= y": lambda x, y, low, high: not larger(x - high, y) and not larger(y, x - low),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(doubles, doubles, bounds, bounds, capacities)
def test_other_spellings(
    spelling: str, left: list[float], right: list[float], low: float, high: float, capacity: int
) -> None:
    def good(i: int, j: int) -> bool:
        return SPELLINGS[spelling](left[i], right[j], low, high)

    join = prepare_checked(np.array(left), np.array(right), low, high, as_check(good), DOUBLE_STEP)
    check_join(windows, join, (len(left), len(right)), good, capacity)
    assert (np.diff(join.starts) >= 0).all()
    assert (np.diff(join.ends) >= 0).all()


singles = st.lists(st.floats(-10, 10, width=32), max_size=10)


@given(singles, singles)
def test_single_precision(left: list[float], right: list[float]) -> None:
    def good(i: int, j: int) -> bool:
        return bool(abs(np.float32(left[i]) - np.float32(right[j])) <= np.float32(0.1))

    join = prepare_checked(np.array(left), np.array(right), -0.1, 0.1, as_check(good), SINGLE_STEP)
    check_join(windows, join, (len(left), len(right)), good, 1000)


def test_the_condition_is_asked_once_for_equal_values() -> None:
    asked = 0

    def check(left: Rows, right: Rows) -> Flags:
        nonlocal asked
        asked += len(left)
        return np.ones(len(left), np.bool_)

    rows = np.repeat([0.0, 1.0, 2.0, 3.0], 20)
    join = prepare_checked(rows, rows, -1.0, 1.0, check)
    assert windows.count(join) == 400 * (4 + 2 * 3)
    assert asked == 6  # pairs exactly at the distance


def test_bounds_must_be_numbers() -> None:
    nothing = np.empty(0)
    with pytest.raises(ValueError, match="finite bounds; got inf"):
        prepare_floats(nothing, nothing, 0.0, math.inf)
    with pytest.raises(ValueError, match="finite bounds; got nan"):
        prepare_checked(nothing, nothing, math.nan, 1.0, as_check(lambda i, j: True))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [3, 50, 10**9])
def test_larger_inputs(seed: int, spread: int) -> None:
    rng = generator(seed)
    left, right = rng.integers(-spread, spread, 70), rng.integers(-spread, spread, 90)

    def good(i: int, j: int) -> bool:
        return abs(int(left[i]) - int(right[j])) <= 2

    check_join(windows, prepare(left, right, -2, 2), (70, 90), good, 64)
    check_join(windows, prepare_floats(left / 8, right / 8, -0.25, 0.25), (70, 90), good, 64)


def test_nobody_is_asked_about_values_far_from_all_edges() -> None:
    rng = generator(0)
    left, right = rng.random(200), rng.random(200)

    def check(left_rows: Rows, right_rows: Rows) -> Flags:
        raise AssertionError("asked")

    join = prepare_checked(left, right, -0.1, 0.2, check)
    difference = left[:, None] - right
    assert windows.count(join) == int(((difference >= -0.1) & (difference <= 0.2)).sum())
