from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.seed import generator

from dovetail.core import threads
from dovetail.core.codes import float_codes
from dovetail.core.threads import allow_threads
from dovetail.kernels import sorting
from dovetail.kernels.sorting import invert, order_by_count, pick, scatter, sort_codes

Words = NDArray[np.int64]
Shape = Callable[[np.random.Generator, int], Words]

SHAPES: dict[str, Shape] = {
    "all of 64 bits": lambda rng, n: rng.integers(-(2**63), 2**63 - 1, n, endpoint=True),
    "uniform floats": lambda rng, n: float_codes(rng.random(n)),
    "normal floats": lambda rng, n: float_codes(rng.standard_normal(n)),
    "whole floats": lambda rng, n: float_codes(np.floor(rng.random(n) * 50)),
    "few values": lambda rng, n: rng.integers(-5, 5, n),
    "one digit": lambda rng, n: rng.integers(-1000, 1000, n),
    "two digits": lambda rng, n: rng.integers(0, 2**20, n),
    "skewed": lambda rng, n: np.minimum(rng.zipf(1.3, n), 10**9),
    "all the same": lambda rng, n: np.full(n, 7),
    "two extremes": lambda rng, n: rng.choice([-(2**63), 2**63 - 1], n),
    "ascending": lambda rng, n: np.arange(n),
    "descending": lambda rng, n: np.arange(n)[::-1].copy(),
    "nearly sorted": lambda rng, n: np.arange(n) * 100 + rng.integers(0, 500, n),
    # High bits hardly distinguish the keys, so insertion gives up.
    "clusters": lambda rng, n: (rng.integers(-4, 4, n) << 60) + (rng.integers(0, 3, n) << 40) + rng.integers(0, 99, n),
    "one outlier": lambda rng, n: np.append(rng.integers(0, 999, n - 1), 2**62) if n else np.empty(0, np.int64),
}


def check(codes: Words) -> None:
    given_codes = codes.copy()
    order, ascending = sort_codes(codes)
    expected = np.argsort(codes, kind="stable")
    assert order.tolist() == expected.tolist()
    assert ascending.tolist() == given_codes[expected].tolist()
    assert codes.tolist() == given_codes.tolist()
    assert (order.dtype, ascending.dtype) == (np.int32, np.int64)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [0, 1, 2, 256, 257, 3000])
def test_sorts_any_distribution_as_a_stable_sort_does(shape: str, size: int) -> None:
    check(SHAPES[shape](generator(size), size))


@pytest.mark.parametrize("shape", SHAPES)
def test_small_inputs_as_words(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "SMALL", 0)
    for size in (2, 3, 41, 60):
        check(SHAPES[shape](generator(size), size))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("vector", [True, False])
def test_by_numpy_and_digit_by_digit(shape: str, vector: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "FEW_WORDS", 0)
    monkeypatch.setattr(sorting, "VECTOR_SORT", vector)
    for size in (257, 900):
        check(SHAPES[shape](generator(size), size))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("vector", [True, False])
def test_several_threads(shape: str, vector: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "FEW_WORDS", 0)
    monkeypatch.setattr(sorting, "VECTOR_SORT", vector)
    monkeypatch.setattr(threads, "RANGE", 8)
    for number, sampled in ((2, 64), (3, 1), (8, 4), (64, 2)):
        monkeypatch.setattr(sorting, "SAMPLED", sampled)
        with allow_threads(number):
            check(SHAPES[shape](generator(number), 700))


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2), min_size=2, max_size=70))
def test_sorts_whatever_is_given(codes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "SMALL", 0)
        check(np.array(codes, np.int64))


def test_read_only_codes() -> None:
    codes = generator(0).integers(0, 2**40, 300)
    codes.flags.writeable = False
    check(codes)


def test_from_2_to_the_31_rows_on_rows_are_wider() -> None:
    assert sorting.row_type(2**31 - 1) is np.int32
    assert sorting.row_type(2**31) is np.int64


def test_wide_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "row_type", lambda rows: np.int64)
    codes = SHAPES["clusters"](generator(0), 1000)
    order, _ = sort_codes(codes)
    assert order.dtype == np.int64
    assert order.tolist() == np.argsort(codes, kind="stable").tolist()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_permutations(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "RANGE", 1)
    rows = np.array([2, 0, 3, 1], np.int32)
    values = np.array([10, 11, 12, 13])
    with allow_threads(number):
        assert pick(values, rows).tolist() == [12, 10, 13, 11]
        assert scatter(values, rows).tolist() == [11, 13, 10, 12]
        assert invert(rows).tolist() == [1, 3, 0, 2]


@given(st.lists(st.integers(0, 9), max_size=60))
def test_small_numbers_are_ordered_by_counting(numbers: list[int]) -> None:
    given_ = np.array(numbers, np.int32)
    assert (order_by_count(given_, 9) == np.argsort(given_, kind="stable")).all()
