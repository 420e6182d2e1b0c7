"""Sums and minima over the partners of each left row, against the definition, for every class of predicate."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dovetail.aggregates.partial import over_partners
from dovetail.condition import parse
from dovetail.core.rows import one_batch
from dovetail.matching import build_matcher
from dovetail.matching import matcher as build
from dovetail.matching.kernel_pairs import NONE
from dovetail.matching.matcher import Parts
from dovetail.testing import CONDITIONS, definition, random_table

MORE = (
    "TRUE",
    "l.k = r.k AND abs(l.x - r.x) <= 1",
    "l.k = r.k AND l.x < r.x AND l.n >= r.n",
    "l.k < r.k AND l.x > r.x AND l.n <= r.n",
    "l.k != r.k AND l.s = r.s",
    "l.n BETWEEN r.n - 1 AND r.n + 2.5",
    "(l.k, l.n) OVERLAPS (r.k, r.n)",
    "distance(l.k, l.x, r.k, r.x) < 1.5",
)
FLOATS = np.array([0.0, -1.5, 2.25, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("on", [*CONDITIONS, *MORE])
@pytest.mark.parametrize("large_group", [1, 1 << 14])
def test_equals_the_definition(on: str, large_group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "LARGE_GROUP", large_group)
    rng = random.Random(f"{on}{large_group}")
    for _ in range(8):
        left, right = random_table(rng), random_table(rng)
        numbers = np.random.default_rng(rng.randrange(99))
        whole = numbers.integers(-(2**40), 2**40, right.num_rows)
        floats = numbers.choice(FLOATS, right.num_rows)
        codes = np.where(numbers.random(right.num_rows) < 0.2, NONE, whole)
        matcher = build_matcher(parse(on, left.schema, right.schema), *map(_batch, (left, right)))
        assert isinstance(matcher, Parts)
        found = over_partners(matcher, [whole, floats], [codes])
        partners: list[list[int]] = [[] for _ in range(left.num_rows)]
        for left_row, right_row in definition(left, right, on):
            partners[left_row].append(right_row)
        assert found.counts.tolist() == [len(rows) for rows in partners]
        assert found.sums[0].tolist() == [whole[rows].sum() for rows in partners]
        with np.errstate(invalid="ignore"):
            assert np.array_equal(found.sums[1], [floats[rows].sum() for rows in partners], equal_nan=True)
        assert found.smallest[0].tolist() == [codes[rows].min(initial=NONE) for rows in partners]


def test_chunks_of_checked_pairs_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.aggregates.partial.ROOM", 3)
    table = pa.table({"k": [1, 2, 3, 4, 5]})
    matcher = build_matcher(parse("l.k + r.k > 4", table.schema, table.schema), *map(_batch, (table, table)))
    assert isinstance(matcher, Parts)
    found = over_partners(matcher, [np.array([1, 10, 100, 1000, 10000])], [np.array([5, 4, 3, 2, 1])])
    assert found.counts.tolist() == [2, 3, 4, 5, 5]
    assert found.sums[0].tolist() == [11000, 11100, 11110, 11111, 11111]
    assert found.smallest[0].tolist() == [1, 1, 1, 1, 1]


def _batch(table: pa.Table) -> pa.RecordBatch:
    return one_batch(table, table.schema)
