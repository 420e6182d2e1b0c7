"""Sums in limbs, against Python's integers."""

import random
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dovetail.aggregates.limbs import MASK, decimals, fits, propagate_carries, split

TYPES = [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64(), pa.decimal128(18, 3), pa.decimal128(38, 0)]
WIDE = Context(prec=60)


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
    limbs = split(column([7, *numbers], type_).slice(1), times)
    assert fits(limbs, times)
    assert [value(limbs, row) for row in range(50)] == [n or 0 for n in numbers]
    many = [limb * times for limb in limbs]
    tidy = propagate_carries(many)
    assert [value(tidy, row) for row in range(50)] == [(n or 0) * times for n in numbers]
    assert all((limb >= 0).all() and (limb <= MASK).all() for limb in tidy[:-1])


@pytest.mark.parametrize("number", [0, 1, -1, 2**64, -(2**64), 2**96 + 5, 10**38 - 1, 1 - 10**38])
def test_decimals(number: int) -> None:
    limbs = [np.array([number >> 32 * k & int(MASK) if k < 3 else number >> 96]) for k in range(4)]
    found = decimals(limbs, 4, np.array([True]))
    assert found is not None
    assert found.type == pa.decimal128(38, 4)
    assert found.to_pylist() == [Decimal(number).scaleb(-4, WIDE)]
    nothing = decimals(limbs, 4, np.array([False]))
    assert nothing is not None
    assert nothing.to_pylist() == [None]


@pytest.mark.parametrize("number", [10**38, -(10**38), 2**127, -(2**127), 2**128 + 1, -(2**130), 2**159 - 1])
def test_more_than_38_digits_are_told(number: int) -> None:
    limbs = [np.array([number >> 32 * k & int(MASK) if k < 4 else number >> 128]) for k in range(5)]
    assert decimals(limbs, 0, np.array([True])) is None
