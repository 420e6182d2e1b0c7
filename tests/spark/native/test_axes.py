"""Which rows go to a single cell, and which are copied."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dovetail.condition import parse
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.planning.statistics import LENGTHS
from dovetail.spark.native.axes import Axis, axes_of
from dovetail.spark.native.cells import Lengths, Sampled, choose_cells

POINTS = pa.schema({"t": pa.float64()})
RANGES = pa.schema({"s": pa.float64(), "e": pa.float64()})


def axes(on: str, left: pa.Schema, right: pa.Schema, larger: Side, how: JoinType = JoinType.INNER) -> tuple[Axis, ...]:
    return axes_of(parse(on, left, right).strategy, how, larger)


@pytest.mark.parametrize("larger", Side)
def test_points_are_in_one_cell(larger: Side) -> None:
    """Also if the side with the intervals is larger."""
    (axis,) = axes("l.t >= r.s AND l.t <= r.e", POINTS, RANGES, larger)
    assert axis.point is Side.LEFT
    assert axis.end is None


@pytest.mark.parametrize("larger", Side)
def test_intervals_of_both_sides_are_copied(larger: Side) -> None:
    (axis,) = axes("l.s < r.e AND r.s < l.e", RANGES, RANGES, larger)
    assert axis.point is larger
    assert axis.end is not None
    assert axes("l.s < r.e AND r.s < l.e", RANGES, RANGES, larger, JoinType.LEFT) == ()


def test_copies_of_both_sides_are_counted() -> None:
    """Every overlapping pair is a candidate in at least one cell; with the best width, there are few others."""
    rng = np.random.default_rng(3)
    low, other = np.sort(rng.random(2000)) * 1e6, rng.random(2000) * 1e6
    end, high = low + rng.random(2000) * 1000, other + rng.random(2000) * 1000
    cells = choose_cells(Sampled(low, other, high, (1.0, 1.0), ends=end))
    pairs = int(((low[:, None] < high) & (other < end[:, None])).sum())
    assert pairs <= cells.candidates < 20 * pairs
    assert 4000 <= cells.copies < 12_000
    assert cells.levels == (0,)


def test_few_long_rows_that_no_sample_has_are_not_copied_a_million_times() -> None:
    rng = np.random.default_rng(4)
    low, other = np.sort(rng.random(4096)) * 1e9, rng.random(4096) * 1e9
    sampled = Sampled(low, other, other + 10, (1000.0, 100.0), ends=low + 10)
    counts = np.zeros(len(LENGTHS), np.int64)
    counts[np.searchsorted(LENGTHS, 1e9)] = 100
    usual, wary = choose_cells(sampled), choose_cells(sampled._replace(by_length=(None, Lengths(counts, 1.0))))
    assert 100 * usual.number > 50_000_000
    assert 100 * wary.number < 10_000_000
    assert wary.copies > usual.copies


def test_an_infinite_row_in_the_sample_does_not_hide_long_ones() -> None:
    counts = np.zeros(len(LENGTHS), np.int64)
    counts[np.searchsorted(LENGTHS, 1e9)] = 100
    ends = np.array([0.0, 5.0, np.inf, -np.inf, -np.inf]), np.array([10.0, np.inf, np.inf, -np.inf, 7.0])
    assert Lengths(counts, 1.0).unseen_copies(*ends, 1.0, 50) == 100 * 50
