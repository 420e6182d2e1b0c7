"""Which rows are evicted: those of the region with the fewest results per row."""

import numpy as np
import pytest

from dovetail.operators.blockwise.regions import Policy, Regions

CODES = np.arange(60)
MARKS = np.zeros(60, np.int32)
BLOCK = 10
LOWER, MIDDLE, UPPER = CODES[:10], CODES[10:50], CODES[50:]


def regions_after_a_flush() -> Regions:
    """Lower, middle and upper regions with 10, 40 and 10 rows, as after some evictions."""
    regions = Regions(Policy())
    regions.move_bounds(CODES, BLOCK, set())
    assert regions.tups.tolist() == [10, 40, 10]
    return regions


@pytest.mark.parametrize(
    ("results", "evicted"),
    [
        ((5, 30, 8), "lower"),  # 0.5, 0.75, 0.8 results per row; the lower region also has the fewest results
        ((8, 30, 5), "upper"),
        ((8, 20, 9), "middle"),  # the most results, but four times as many rows
        ((0, 40, 40), "lower"),
        ((40, 0, 40), "middle"),
        ((40, 40, 0), "upper"),
    ],
)
def test_the_region_with_the_fewest_results_per_row_is_the_victim(results: tuple[int, ...], evicted: str) -> None:
    regions = regions_after_a_flush()
    for codes, found in zip((LOWER, MIDDLE, UPPER), results, strict=True):
        regions.credit(codes[:1], np.array([found]))
    victims = regions.choose(CODES, MARKS, CODES, BLOCK)
    inside = {"lower": LOWER, "middle": MIDDLE, "upper": UPPER}[evicted]
    assert len(victims.rows) == BLOCK
    assert set(victims.rows.tolist()) <= set(inside.tolist())


def test_the_next_worst_region_follows_where_the_worst_is_too_small() -> None:
    regions = regions_after_a_flush()
    for codes, found in ((LOWER, 0), (MIDDLE, 80), (UPPER, 10)):
        regions.credit(codes[:1], np.array([found]))
    victims = regions.choose(CODES, MARKS, CODES, 2 * BLOCK)
    assert sorted(victims.rows.tolist()) == [*LOWER, *UPPER]


def test_marked_rows_of_the_middle_are_spared() -> None:
    regions = regions_after_a_flush()
    for codes, found in ((LOWER, 40), (MIDDLE, 0), (UPPER, 40)):
        regions.credit(codes[:1], np.array([found]))
    marks = MARKS.copy()
    marks[10:40] = 1
    victims = regions.choose(CODES, marks, CODES, BLOCK)
    assert sorted(victims.rows.tolist()) == list(range(40, 50))
    assert set(victims.spared.tolist()) <= set(range(10, 40))
