"""The smallest and the largest of any ordered type."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dovetail.aggregates.partial import rank
from dovetail.matching.kernel_pairs import NONE
from dovetail.testing import COLUMNS, random_table


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("largest_first", [False, True])
def test_ranks_have_the_order_of_the_values(name: str, largest_first: bool) -> None:
    values = random_table(random.Random(name), 60).column(name).combine_chunks()
    order = rank(values, largest_first)
    assert (order.ranks == NONE).tolist() == values.is_null().to_pylist()
    if name != "x":  # 0.0 and -0.0 are one value
        assert order.values_at(order.ranks).equals(values)
    some = [value for value in values.to_pylist() if value is not None and value == value]
    best = order.values_at(np.array([order.ranks.min()]))[0].as_py()
    if largest_first and name == "x":
        assert best != best  # NaN
    else:
        assert best == (max(some) if largest_first else min(some))


def test_bytes_are_compared_one_by_one() -> None:
    values = pa.array([b"b", b"\xff", b"", b"a\x00"])
    assert rank(values, False).values_at(np.arange(4)).to_pylist() == [b"", b"a\x00", b"b", b"\xff"]


def test_nothing() -> None:
    order = rank(pa.array([], pa.string()), False)
    assert order.values_at(np.full(2, NONE)).to_pylist() == [None, None]
