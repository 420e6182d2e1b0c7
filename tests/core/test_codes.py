import itertools

import numpy as np
import pyarrow as pa
import pytest
from tests.nans import NANS
from tests.seed import generator

from dovetail.core.codes import BLOCK, LEAST, MOST, add_saturating, float_codes, order_codes, saturating_range

NEGATIVE_NAN = np.copysign(np.nan, -1.0)
LARGEST = float_codes(np.array([np.nan]))[0]
NUMBERS = [-np.inf, -1e300, -1.5, -5e-324, 0.0, 5e-324, 1.0, 1.5, 1e300, np.inf, np.nan]


def test_codes_of_floats_are_in_order() -> None:
    codes = float_codes(np.array(NUMBERS))
    assert codes.dtype == np.int64
    assert all(a < b for a, b in itertools.pairwise(codes))


@pytest.mark.parametrize("numbers", [[0.0, -0.0], [np.nan, NEGATIVE_NAN], [-0.0, 0.0, -1.0]])
def test_equal_floats_have_equal_codes(numbers: list[float]) -> None:
    assert len(set(float_codes(np.array(numbers[:2])).tolist())) == 1
    assert len(set(float_codes(np.array(numbers)).tolist()[:2])) == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("type_", NANS, ids=str)
def test_a_nan_has_one_code_whatever_its_bits(type_: pa.DataType) -> None:
    numbers = NANS[type_]
    assert np.isnan(numbers).all()
    assert set(order_codes(pa.array(numbers)).values.tolist()) == {LARGEST}
    for number in numbers:  # alone, and with only positive numbers: negative numbers take another path
        assert order_codes(pa.array(np.array([number]))).values.tolist() == [LARGEST]
        assert order_codes(pa.array(np.array([1, number], numbers.dtype))).values.tolist()[1] == LARGEST


@pytest.mark.parametrize("rest", [[], [-1.0], [np.nan], [-0.0], [NEGATIVE_NAN]])
@pytest.mark.parametrize("size", [0, 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_codes_do_not_depend_on_the_numbers_around(rest: list[float], size: int) -> None:
    numbers = np.append(generator(0).random(size), rest)
    alone = [float_codes(np.array([number]))[0] for number in numbers[:3].tolist() + numbers[-3:].tolist()]
    codes = float_codes(numbers)
    assert codes[:3].tolist() + codes[-3:].tolist() == [int(code) for code in alone]


def test_the_numbers_stay_as_they_are() -> None:
    numbers = np.array([-0.0, NEGATIVE_NAN, -1.0, 2.0])
    before = numbers.tobytes()
    float_codes(numbers)
    assert numbers.tobytes() == before


def test_codes_of_numbers_that_are_all_positive_are_no_copy() -> None:
    column = pa.array(generator(0).random(100))
    assert np.shares_memory(order_codes(column).values, np.asarray(column))


EDGES = [LEAST, LEAST + 1, -(2**62), -1, 0, 1, 2**62, MOST - 1, MOST]
AMOUNTS = [0, 1, -1, 2**62, MOST, LEAST, 2**63, 2**64 - 1, -(2**64) + 1, 2**70, -(2**70)]


@pytest.mark.parametrize("amount", AMOUNTS)
def test_sums_are_cut_off_at_64_bits(amount: int) -> None:
    expected = [max(LEAST, min(MOST, code + amount)) for code in EDGES]
    assert add_saturating(np.array(EDGES), amount).tolist() == expected


@pytest.mark.parametrize(("low", "high"), list(itertools.combinations_with_replacement(sorted(AMOUNTS), 2)))
def test_ranges_are_cut_off_at_64_bits(low: int, high: int) -> None:
    lows, highs = saturating_range(np.array(EDGES), low, high)
    for code, first, last in zip(EDGES, lows.tolist(), highs.tolist(), strict=True):
        expected = range(max(LEAST, code + low), min(MOST, code + high) + 1)
        assert range(first, last + 1) == expected
