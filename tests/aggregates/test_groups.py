"""Groups of equal keys, their sums and their smallest ranks."""

import math
import random
from collections import defaultdict
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.nans import NANS

from dovetail.aggregates.groups import (
    MASK,
    decimals_of,
    group,
    limbs_fit,
    one_group,
    propagate_carries,
    split_into_limbs,
)
from dovetail.matching.kernel_pairs import NONE
from dovetail.testing import random_table

TYPES = [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64(), pa.decimal128(18, 3), pa.decimal128(38, 0)]
WIDE = Context(prec=60)


def plain(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("keys", ["k", "x", "s", "d", "b", "t", "n", "w", "kx", "swb", "bdkn"])
@pytest.mark.parametrize("rows", [0, 1, 40, 400])
def test_equals_a_dictionary(keys: str, rows: int) -> None:
    table = random_table(random.Random(keys), rows).combine_chunks()
    columns = [table.column(key).combine_chunks() for key in keys]
    expected: dict[Any, list[int]] = defaultdict(list)
    for row, key in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
        expected[tuple(map(plain, key))].append(row)
    numbers = np.random.default_rng(0).integers(-9, 9, rows)
    found = group(columns)
    named = [tuple(plain(column[row].as_py()) for column in columns) for row in found.first_rows.tolist()]
    assert dict(zip(named, found.sum(numbers).tolist(), strict=True)) == {
        key: numbers[members].sum() for key, members in expected.items()
    }
    assert dict(zip(named, found.smallest(numbers).tolist(), strict=True)) == {
        key: numbers[members].min() for key, members in expected.items()
    }


def test_one_group_may_be_empty() -> None:
    nothing = one_group(0)
    assert nothing.sum(np.empty(0, np.int64)).tolist() == [0]
    assert nothing.sum_limbs([np.empty(0, np.int64)])[0].tolist() == [0]
    assert nothing.smallest(np.empty(0, np.int64)).tolist() == [NONE]
    assert one_group(3).sum(np.array([1.0, 2.0, 3.0])).tolist() == [6.0]


def test_limbs_are_carried_before_they_overflow() -> None:
    limbs = one_group(3).sum_limbs([np.array([2**62, 2**62, 2**62])])
    assert sum(int(limb[0]) << 32 * k for k, limb in enumerate(limbs)) == 3 * 2**62


@pytest.mark.parametrize("type_", NANS, ids=str)
def test_nans_of_any_bits_are_one_group(type_: pa.DataType) -> None:
    numbers = pa.concat_arrays([pa.array(NANS[type_]), pa.array([None, 1.0], pa.float64()).cast(type_)])
    assert sorted(group([numbers]).sizes.tolist()) == [1, 1, len(NANS[type_])]
    lists = pa.ListArray.from_arrays(list(range(len(numbers) + 1)), numbers)
    for nested in (pa.StructArray.from_arrays([numbers], ["x"]), lists):
        assert sorted(group([nested]).sizes.tolist()) == [1, 1, len(NANS[type_])]


def numbers_of(type_: pa.DataType, rng: random.Random, size: int) -> list[Any]:
    if pa.types.is_decimal(type_):
        low, high = 1 - 10**type_.precision, 10**type_.precision - 1
    elif pa.types.is_signed_integer(type_):
        low, high = -(2 ** (type_.bit_width - 1)), 2 ** (type_.bit_width - 1) - 1
    else:
        low, high = 0, 2**type_.bit_width - 1
    some = [low, high, 0, 1, None, *(rng.randint(low, high) for _ in range(5))]
    return [rng.choice(some) for _ in range(size)]


def column(numbers: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(type_):
        return pa.array([None if n is None else Decimal(n).scaleb(-type_.scale, WIDE) for n in numbers], type_)
    return pa.array(numbers, type_)


def value(limbs: list[Any], row: int) -> int:
    return sum(int(limb[row]) << 32 * k for k, limb in enumerate(limbs))


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("times", [1, 1000, 2**31])
def test_splits_and_carries_keep_the_value(type_: pa.DataType, times: int) -> None:
    rng = random.Random(f"{type_}{times}")
    numbers = numbers_of(type_, rng, 50)
    limbs = split_into_limbs(column([7, *numbers], type_).slice(1), times)
    assert limbs_fit(limbs, times)
    assert [value(limbs, row) for row in range(50)] == [n or 0 for n in numbers]
    many = [limb * times for limb in limbs]
    tidy = propagate_carries(many)
    assert [value(tidy, row) for row in range(50)] == [(n or 0) * times for n in numbers]
    assert all((limb >= 0).all() and (limb <= MASK).all() for limb in tidy[:-1])


@pytest.mark.parametrize("number", [0, 1, -1, 2**64, -(2**64), 2**96 + 5, 10**38 - 1, 1 - 10**38])
def test_decimals(number: int) -> None:
    limbs = [np.array([number >> 32 * k & int(MASK) if k < 3 else number >> 96]) for k in range(4)]
    found = decimals_of(limbs, 4, np.array([True]))
    assert found is not None
    assert found.type == pa.decimal128(38, 4)
    assert found.to_pylist() == [Decimal(number).scaleb(-4, WIDE)]
    nothing = decimals_of(limbs, 4, np.array([False]))
    assert nothing is not None
    assert nothing.to_pylist() == [None]


@pytest.mark.parametrize("number", [10**38, -(10**38), 2**127, -(2**127), 2**128 + 1, -(2**130), 2**159 - 1])
def test_more_than_38_digits_are_told(number: int) -> None:
    limbs = [np.array([number >> 32 * k & int(MASK) if k < 4 else number >> 128]) for k in range(5)]
    assert decimals_of(limbs, 0, np.array([True])) is None
