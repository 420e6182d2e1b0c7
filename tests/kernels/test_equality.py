"""Equal codes by buckets: codes that are close, far apart, at the ends of 64 bits, or frequent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.brute_force import check_join, pairs_where
from tests.seed import generator

from dovetail.core import threads
from dovetail.core.threads import allow_threads
from dovetail.kernels import equality
from dovetail.kernels.equality import pairs_to_compare, same_codes, same_strings

ENDS = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**32, 2**62, 2**63 - 2, 2**63 - 1]
close = st.lists(st.integers(-4, 12), max_size=25)
apart = st.lists(st.sampled_from(ENDS), max_size=25)
both = st.one_of(st.tuples(close, close), st.tuples(apart, apart), st.tuples(apart, close))


@given(both, st.integers(1, 40))
def test_equals_the_definition(sides: tuple[list[int], list[int]], capacity: int) -> None:
    left, right = (np.array(codes, np.int64) for codes in sides)
    join = equality.prepare(left, right)
    check_join(equality, join, (len(left), len(right)), lambda i, j: bool(left[i] == right[j]), capacity)


@given(both, st.integers(1, 6), st.integers(1, 40))
def test_parts_have_the_same_pairs_in_the_same_order(
    sides: tuple[list[int], list[int]], parts: int, capacity: int
) -> None:
    left, right = (np.array(codes, np.int64) for codes in sides)
    join = equality.prepare(left, right)
    expected = pairs_where(len(left), len(right), lambda i, j: bool(left[i] == right[j]))
    found = [
        pair
        for part in equality.split(join, parts)
        for lefts, rights in equality.pairs(part, capacity)
        for pair in zip(lefts.tolist(), rights.tolist(), strict=True)
    ]
    assert found == expected


@given(both, st.lists(st.integers(-100, 100), min_size=25, max_size=25))
def test_aggregates_over_the_partners(sides: tuple[list[int], list[int]], numbers: list[int]) -> None:
    left, right = sides
    values = np.array(numbers[: len(right)], np.int64)
    join = equality.prepare(np.array(left, np.int64), np.array(right, np.int64))
    partners = [[int(v) for v, other in zip(values, right, strict=True) if other == code] for code in left]
    assert equality.row_sums(join, values).tolist() == [sum(p) for p in partners]
    for found, choose in (
        (equality.smallest_partners(join, values), min),
        (equality.smallest_partners(join, ~values), max),
    ):
        chosen = [None if row < 0 else int(values[row]) for row in found]
        assert chosen == [choose(p) if p else None for p in partners]


def test_many_rows_of_one_code_beside_others_in_its_bucket() -> None:
    rng = generator(0)
    codes = rng.integers(-(2**62), 2**62, 40)
    right = rng.permutation(np.concatenate([np.repeat(codes, 50), np.full(5_000, codes[0])]))
    left = np.concatenate([codes, rng.integers(-(2**62), 2**62, 40)])
    join = equality.prepare(left, right)
    assert equality.row_counts(join).tolist() == [int((right == code).sum()) for code in left]
    for lefts, rights in equality.pairs(join):
        assert (left[lefts] == right[rights]).all()


KEYS = {
    "dense": lambda rng, rows: rng.integers(-20, rows, rows),
    "spread": lambda rng, rows: rng.integers(0, 2**60, 500)[rng.integers(0, 500, rows)],
    "skewed": lambda rng, rows: rng.zipf(1.3, rows).clip(0, 2**50),
    "one key": lambda rng, rows: np.full(rows, 2**40),
    "few": lambda rng, rows: rng.integers(0, 3, rows) << 61,
}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("number", [2, 3, 64])
def test_threads_find_the_same(keys: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "RANGE", 16)
    rng = generator(1)
    left, right = KEYS[keys](rng, 900), KEYS[keys](rng, 1_000)
    with allow_threads(number):
        several = equality.prepare(left, right)
    one = equality.prepare(left, right)
    assert all((a == b).all() for a, b in zip(several[:3], one[:3], strict=True))


def strings(values: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *(len(value) for value in values)]).astype(np.int32)
    return offsets, np.frombuffer(b"".join(values), np.uint8)


def test_every_row_of_a_range_is_compared() -> None:
    join = equality.prepare(np.array([7, 9, 7, 5]), np.array([7, 7, 9, 7]))
    lefts, rights = pairs_to_compare(join)
    assert sorted(zip(lefts.tolist(), rights.tolist(), strict=True)) == [(0, 0), (0, 1), (0, 3), (1, 2), (2, 0)]


@pytest.mark.parametrize("keys", KEYS)
def test_threads_compare_the_same_pairs(keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "RANGE", 16)
    rng = generator(2)
    join = equality.prepare(KEYS[keys](rng, 900), KEYS[keys](rng, 1_000))
    with allow_threads(7):
        several = pairs_to_compare(join)
    assert all((a == b).all() for a, b in zip(several, pairs_to_compare(join), strict=True))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 40])
def test_strings_differ_by_any_byte_or_by_length(size: int) -> None:
    value = bytes(range(1, size + 1))
    rows = np.array([1]), np.array([0])

    def same(left: bytes, right: bytes) -> bool:
        return same_strings(strings([b"before", left]), strings([right, b"behind"]), *rows)

    assert same(value, value)
    assert not same(value, value + b"x")
    assert not same(value + b"x", value)
    for place in range(size):
        assert not same(value, value[:place] + b"\xff" + value[place + 1 :])


def test_codes() -> None:
    left, right = np.array([3, 4, 5]), np.array([5, 3])
    assert same_codes(left, right, np.array([0, 2]), np.array([1, 0]))
    assert not same_codes(left, right, np.array([0, 1]), np.array([1, 0]))
