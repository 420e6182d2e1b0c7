"""Parts that are sorted once and probed in batches, against the definition; also with deleted rows."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.inequalities import EXTREMES, MEANING, Table, Words, check_pairs, check_summaries, table
from tests.seed import generator

from dovetail.kernels import one_inequality, sorting, two_inequalities
from dovetail.kernels.cross import EQUAL, GREATER, LESS
from dovetail.kernels.two_inequalities import (
    TwoInequalities,
    arrange,
    build,
    emit,
    pairs,
    prepare,
    probe,
    row_sums,
    start_sweep,
    without,
)

OPERATORS = list(itertools.product(MEANING, MEANING))
SIZES = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 90), (90, 1), (25, 200)]

Side = tuple[Words, Words]


def side(rng: np.random.Generator, rows: int, spread: int) -> Side:
    return rng.integers(-spread, spread, rows), rng.integers(-spread, spread, rows)


def both(left: Side, right: Side, operators: tuple[int, int]) -> Table:
    return table(left[0], right[0], operators[0]) & table(left[1], right[1], operators[1])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("operators", OPERATORS)
@pytest.mark.parametrize("spread", [1, 6, 2**62])
@pytest.mark.parametrize("swap", [False, True, None])
def test_agrees_with_the_definition(operators: tuple[int, int], spread: int, swap: bool | None) -> None:
    rng = generator(operators)
    for sizes in SIZES:
        left, right = (side(rng, size, spread) for size in sizes)
        join, good = prepare(left, right, operators, swap), both(left, right, operators)
        check_summaries(two_inequalities, join, good, rng.integers(-3, 4, sizes[1]))
        check_pairs(two_inequalities, join, good, int(rng.integers(1, 300)))


@given(
    st.lists(st.tuples(st.sampled_from(EXTREMES), st.sampled_from(EXTREMES)), max_size=10),
    st.lists(st.tuples(st.sampled_from(EXTREMES), st.sampled_from(EXTREMES)), max_size=10),
    st.sampled_from(OPERATORS),
    st.sampled_from([False, True, None]),
    st.integers(1, 30),
)
def test_extreme_codes(
    left: list[tuple[int, int]],
    right: list[tuple[int, int]],
    operators: tuple[int, int],
    swap: bool | None,
    capacity: int,
) -> None:
    lefts, rights = (tuple(np.array(rows, np.int64).reshape(-1, 2).T.copy()) for rows in (left, right))
    join, good = prepare(lefts, rights, operators, swap), both(lefts, rights, operators)
    check_pairs(two_inequalities, join, good, capacity)
    check_summaries(two_inequalities, join, good, np.arange(len(right)) % 3)


# Chunk borders are within words, between words (64 bits) and between left rows.
@pytest.mark.parametrize("capacity", [1, 2, 63, 64, 65, 100, 128, 200, 400, 799, 800, 801])
def test_every_place_where_a_chunk_can_end(capacity: int) -> None:
    everything = np.zeros(4, np.int64), np.zeros(4, np.int64)
    right = np.ones(200, np.int64), np.ones(200, np.int64)
    check_pairs(two_inequalities, prepare(everything, right, (LESS, LESS)), np.ones((4, 200), np.bool_), capacity)


@pytest.mark.parametrize("seed", range(5))
def test_chunks_of_any_size_on_several_words(seed: int) -> None:
    rng = generator(seed)
    left, right = side(rng, 12, 40), side(rng, 300, 40)
    good = both(left, right, (LESS, GREATER))
    for swap in (False, True):
        join = prepare(left, right, (LESS, GREATER), swap)
        for capacity in (1, 3, 17, 64, 191, int(good.sum()), int(good.sum()) + 1):
            check_pairs(two_inequalities, join, good, capacity)


@pytest.mark.parametrize("capacity", [1, 2, 5, 1000])
def test_bits_that_are_far_apart(capacity: int) -> None:
    """Words, groups (4,096 positions) and fields (262,144) without a set bit are skipped."""
    size = 600_000
    added = np.array([599_999, 262_143, 262_144, 4095, 4096, 5000, 63, 64, 0, 524_288], np.int32)
    reach = np.arange(len(added), dtype=np.int32)
    start = np.array([0, 1, 64, 4096, 4097, 262_144, 0, 300_000, 0, 524_289], np.int32)
    left = np.arange(len(added), dtype=np.int32)
    join = TwoInequalities(left, start, reach, np.arange(size, dtype=np.int32), added, len(left), size)
    expected = sorted((k, int(p)) for k in range(len(left)) for p in added[k:] if p >= start[k])
    chunks = list(pairs(join, capacity))
    found = sorted(pair for chunk in chunks for pair in zip(*(rows.tolist() for rows in chunk), strict=True))
    assert found == expected
    assert all(len(lefts) == capacity for lefts, _ in chunks[:-1])


def test_arrays_of_the_caller_are_filled_again_and_again() -> None:
    rng = np.random.default_rng(1)
    left, right = side(rng, 30, 9), side(rng, 100, 9)
    join = prepare(left, right, (LESS, LESS))
    sweep = start_sweep(join)
    lefts, rights = np.empty(32, np.int32), np.empty(32, np.int32)
    good = np.zeros((30, 100), np.bool_)
    while size := emit(join, sweep, lefts, rights):
        assert not good[lefts[:size], rights[:size]].any()
        good[lefts[:size], rights[:size]] = True
    assert (good == both(left, right, (LESS, LESS))).all()
    assert emit(join, sweep, lefts, rights) == 0  # it stays exhausted


def test_rows_without_a_candidate_are_left_out() -> None:
    left = np.array([5, 0, 9]), np.array([0, 0, 0])
    right = np.array([1, 7, -3]), np.array([1, 1, 1])
    join = prepare(left, right, (LESS, LESS))
    assert sorted(join.left.tolist()) == [0, 1]
    assert sorted(join.right.tolist()) == [0, 1]


@pytest.mark.parametrize("selective", [0, 1])
def test_the_more_selective_attribute_is_in_the_bits(selective: int) -> None:
    rng = generator(0)
    few, many = rng.permutation(50), rng.permutation(50)
    left, right = [few.copy(), many - 25], [few, many]
    left[0][few > 0] += 40  # except for one left row, which matches all right rows
    if selective == 1:
        left, right = left[::-1], right[::-1]
    join = prepare((left[0], left[1]), (right[0], right[1]), (LESS, LESS))
    assert (np.diff(right[selective][join.right]) > 0).all()


def test_read_only_codes() -> None:
    rng = generator(2)
    left, right = side(rng, 20, 5), side(rng, 20, 5)
    for codes in (*left, *right):
        codes.flags.writeable = False
    check_pairs(two_inequalities, prepare(left, right, (LESS, GREATER)), both(left, right, (LESS, GREATER)), 50)


def test_wide_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sorting, one_inequality):
        monkeypatch.setattr(module, "row_type", lambda rows: np.int64)
    rng = generator(3)
    left, right = side(rng, 20, 5), side(rng, 20, 5)
    join = prepare(left, right, (LESS, GREATER))
    check_pairs(two_inequalities, join, both(left, right, (LESS, GREATER)), 50)
    assert all(rows.dtype == np.int64 for chunk in pairs(join) for rows in chunk)


def test_an_infinity_is_in_the_sums_that_it_belongs_to_and_no_other() -> None:
    keys = np.arange(3)
    join = prepare((keys, keys), (keys + 1, keys + 1), (LESS, LESS))
    assert row_sums(join, np.array([np.inf, 1.0, 2.0])).tolist() == [np.inf, 3.0, 2.0]


def test_refusals() -> None:
    keys = np.arange(3)
    with pytest.raises(ValueError, match="an inequality is"):
        prepare((keys, keys), (keys, keys), (LESS, EQUAL))
    with pytest.raises(ValueError, match="room for at least one"):
        next(pairs(prepare((keys, keys), (keys, keys), (LESS, LESS)), 0))


@pytest.mark.parametrize("operators", OPERATORS)
@pytest.mark.parametrize("spread", [2, 2**62])
def test_parts_that_are_sorted_once_and_probed_by_batches(operators: tuple[int, int], spread: int) -> None:
    rng = generator(operators)
    for sizes in [(0, 0), (0, 3), (3, 0), (1, 70), (70, 1), (12, 90)]:
        left, right = ((rng.integers(-spread, spread, n), rng.integers(-spread, spread, n)) for n in sizes)
        good = table(left[0], right[0], operators[0]) & table(left[1], right[1], operators[1])
        part, probes = build(right, operators), arrange(left, operators)
        gone = rng.random(sizes[1]) < 0.4
        for kept, expected in ((part, good), (without(part, gone), good & ~gone)):
            join = probe(probes, kept, operators)
            check_summaries(two_inequalities, join, expected, rng.integers(-3, 4, sizes[1]))
            check_pairs(two_inequalities, join, expected, int(rng.integers(1, 100)))
