from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core.threads import allow_threads
from dovetail.kernels.taking import (
    FAR_AHEAD,
    FEW_ROWS,
    NEAR_BYTES,
    is_run,
    take_bits,
    take_lengths,
    take_numbers,
    take_strings,
    take_values,
)

ROW_TYPES = (np.int32, np.int64)


@pytest.mark.parametrize("row_type", ROW_TYPES)
@pytest.mark.parametrize("type_", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_values(type_: type, row_type: type) -> None:
    values = np.arange(200).astype(type_)
    rows = np.array([5, 5, 199, 0], row_type)
    taken = np.empty(4, type_)
    take_values([(values, taken)], rows)
    assert taken.tolist() == [5, 5, 199, 0]
    words = np.arange(400, dtype=np.uint64).reshape(200, 2)
    several = np.empty((4, 2), np.uint64)
    take_values([(values, taken), (words, several)], rows)
    assert several.tolist() == words[rows].tolist()


@pytest.mark.parametrize("count", [0, 1, FAR_AHEAD - 1, FAR_AHEAD, FAR_AHEAD + 1, 3 * FAR_AHEAD])
def test_values_that_are_fetched_ahead(count: int) -> None:
    values = np.arange(NEAR_BYTES // 8 + 1, dtype=np.uint64)
    rows = np.random.default_rng(0).integers(0, len(values), count)
    taken = np.empty(count, np.uint64)
    take_values([(values, taken)], rows)
    assert (taken == rows).all()


def test_many_values_are_taken_in_threads() -> None:
    values = np.arange(1000, dtype=np.uint32)[::-1].copy()
    rows = np.arange(FEW_ROWS + 7, dtype=np.int64) % 1000
    taken = np.empty(len(rows), np.uint32)
    with allow_threads(3):
        take_values([(values, taken)], rows)
    assert (taken == values[rows]).all()


@pytest.mark.parametrize("row_type", ROW_TYPES)
@pytest.mark.parametrize("type_", ROW_TYPES)
def test_numbers(type_: type, row_type: type) -> None:
    numbers = np.arange(200, 0, -1).astype(type_)
    taken = take_numbers(numbers, np.array([5, 5, 199], row_type))
    assert taken.dtype == type_
    assert taken.tolist() == [195, 195, 1]


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 9), st.data())
def test_bits(flags: list[bool], offset: int, data: st.DataObject) -> None:
    bits = np.packbits([False] * offset + flags, bitorder="little")
    rows = np.array(data.draw(st.lists(st.integers(0, len(flags) - 1), max_size=40)), np.int64)
    taken = np.empty(-(-len(rows) // 8), np.uint8)
    ones = take_bits(bits, offset, rows, taken)
    expected = [flags[row] for row in rows]
    assert np.unpackbits(taken, count=len(rows), bitorder="little").astype(bool).tolist() == expected
    assert ones == sum(expected)


@pytest.mark.parametrize("row_type", ROW_TYPES)
@given(values=st.lists(st.binary(max_size=20), min_size=1, max_size=20), data=st.data())
def test_strings(values: list[bytes], data: st.DataObject, row_type: type) -> None:
    rows = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=30)), row_type)
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    ends = np.empty(len(rows) + 1, np.int32)
    size = take_lengths(offsets, rows, ends)
    assert size == sum(len(values[row]) for row in rows)
    taken = np.empty(size, np.uint8)
    take_strings(offsets, np.frombuffer(b"".join(values), np.uint8), rows, ends, taken)
    assert [taken[a:b].tobytes() for a, b in pairwise(ends)] == [values[row] for row in rows]


def test_strings_that_32_bits_cannot_count() -> None:
    offsets = np.array([0, 2**30], np.int32)
    assert take_lengths(offsets, np.zeros(2, np.int32), np.empty(3, np.int32)) is None


def test_runs() -> None:
    assert is_run(np.array([3, 4, 5], np.int32))
    assert is_run(np.array([0]))
    assert not is_run(np.array([3, 5, 4, 6]))
    assert not is_run(np.array([0, 0, 2]))
    assert not is_run(np.array([], np.int64))
