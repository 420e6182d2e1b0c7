"""Groups of equal keys, their sums and their smallest ranks."""

import math
import random
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.nans import NANS

from dovetail.aggregates.groups import group, one_group
from dovetail.matching.kernel_pairs import NONE
from dovetail.testing import random_table


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
