import numpy as np
import pytest
from tests.seed import generator

from dovetail.kernels import cells
from dovetail.kernels.band import prepare
from dovetail.kernels.cells import visit

Pair = tuple[int, int]


def within(left: np.ndarray, right: np.ndarray, width: int) -> set[Pair]:
    return {(int(i), int(j)) for i, j in np.argwhere(np.abs(left[:, None] - right[None, :]) <= width)}


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("spread", [1, 6, 40, 10**6])
@pytest.mark.parametrize("good_visit", [0.5, 25.0])
def test_boxes_meet_what_they_hold_and_nothing_twice(
    dimensions: int, spread: int, good_visit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "GOOD_VISIT", good_visit)
    rng = generator(spread)
    left, right = rng.integers(0, spread, (dimensions, 40)), rng.integers(0, spread, (dimensions, 50))
    sweep, *across = (prepare(mine, theirs, -2, 2) for mine, theirs in zip(left, right, strict=True))
    met = visit(sweep, *across)
    visited = [
        (int(met.left[box]), int(met.right[point]))
        for box, first, last in zip(*met.visits, strict=True)
        for point in range(first, last)
    ]
    assert len(set(visited)) == len(visited)
    assert set(visited) <= within(left[0], right[0], 2)  # the sweep is exact
    assert set(visited) >= set.intersection(*(within(a, b, 2) for a, b in zip(left, right, strict=True)))


def test_empty_space_costs_no_cells() -> None:
    x = np.array([0, 1, 2, 10**15, 10**15 + 1, -(10**15)])
    windows = prepare(x, x, -1, 1)
    assert len(visit(windows, windows).cells) - 1 <= 2 * len(x)


@pytest.mark.parametrize(("lefts", "rights"), [(0, 0), (0, 3), (3, 0)])
def test_empty_sides(lefts: int, rights: int) -> None:
    windows = prepare(np.arange(lefts), np.arange(rights), -1, 1)
    assert len(visit(windows, windows).visits.boxes) == 0
    assert len(visit(windows, windows, windows).visits.boxes) == 0
