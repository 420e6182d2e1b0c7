"""Cells against their definition: nested or disjoint, enclosing, divided at the right place."""

import numpy as np
import pytest
from tests.seed import generator

from dovetail.kernels.z_order import Corners, enclosing_cells, halvings_of, meet_here, point_codes


def test_halvings_take_dimensions_in_turn() -> None:
    halvings = halvings_of(np.array([1, 3, 2]))
    assert list(zip(halvings.axes.tolist(), halvings.bits.tolist(), strict=True)) == [
        (1, 2),
        (1, 1),
        (2, 1),
        (0, 0),
        (1, 0),
        (2, 0),
    ]


@pytest.mark.parametrize("copies", [1, 2, 5])
@pytest.mark.parametrize("dimensions", [1, 2, 4])
def test_cells_cover_their_boxes_and_every_pair_meets_once(dimensions: int, copies: int) -> None:
    rng = generator(dimensions)
    bits = rng.integers(1, 4, dimensions)
    halvings = halvings_of(bits)
    lows = rng.integers(0, 2**bits, (20, dimensions))
    highs = np.minimum(lows + rng.integers(0, 3, (20, dimensions)), 2**bits - 1)
    cells = enclosing_cells(lows, highs, halvings, copies)
    assert np.bincount(cells.rows, minlength=20).min() >= 1
    assert np.bincount(cells.rows, minlength=20).max() <= copies
    grid = np.stack(np.meshgrid(*(np.arange(2**b) for b in bits), indexing="ij"), axis=-1).reshape(-1, dimensions)
    codes = point_codes(grid, halvings)
    for row in range(20):
        inside = codes[((grid >= lows[row]) & (grid <= highs[row])).all(axis=1)]
        mine = np.flatnonzero(cells.rows == row)
        holding = (cells.starts[mine] <= inside[:, None]) & (inside[:, None] <= cells.ends[mine])
        assert (holding.sum(axis=1) == 1).all()
    corners = Corners(lows[cells.rows], cells.starts, cells.ends)
    a, b = (x.ravel() for x in np.meshgrid(np.arange(len(cells.rows)), np.arange(len(cells.rows))))
    here = meet_here(corners, corners, a, b, halvings)
    met = np.zeros((20, 20), np.int64)
    np.add.at(met, (cells.rows[a[here]], cells.rows[b[here]]), 1)
    meeting = (np.maximum(lows[:, None], lows) <= np.minimum(highs[:, None], highs)).all(axis=2)
    assert (met[meeting] == 1).all()
    apart = (cells.ends[a] < cells.starts[b]) | (cells.ends[b] < cells.starts[a])
    assert not (here & apart).any()
