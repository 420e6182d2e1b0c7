"""Batches of packed rows have the requested size, and no more."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.spark.exchange.packing import PACK_ROWS, collected


@given(st.lists(st.integers(0, 3_000), max_size=30), st.integers(1, 20_000))
def test_all_rows_in_order_and_no_more_than_fit(sizes: list[int], most: int) -> None:
    ends = np.cumsum([0, *sizes])
    batches = [pa.record_batch({"a": np.arange(*bounds)}) for bounds in pairwise(ends)]
    together = list(collected(iter(batches), most))
    assert [a for batch in together for a in batch["a"].to_pylist()] == list(range(ends[-1]))
    largest = max((batch.nbytes for batch in batches), default=0)
    assert all(0 < batch.nbytes <= max(most, largest) for batch in together)


def test_many_narrow_rows() -> None:
    batches = (pa.record_batch({"a": np.zeros(PACK_ROWS // 4, np.int8)}) for _ in range(8))
    assert [len(batch) for batch in collected(batches)] == [PACK_ROWS, PACK_ROWS]


@pytest.mark.parametrize("size", [1, 3])
def test_nothing_is_held_while_somebody_works_on_it(size: int) -> None:
    made: list[weakref.ref[pa.RecordBatch]] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(6):
            batch = pa.record_batch({"a": np.zeros(1_000)})
            made.append(weakref.ref(batch))
            yield batch
            del batch

    for batch in collected(batches(), size * 8_000):
        assert sum(ref() is not None for ref in made) <= 1  # the one being processed, if it is one of them
        del batch
    assert len(made) == 6
