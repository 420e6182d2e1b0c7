import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.brute_force import as_check, check_join
from tests.seed import generator

from dovetail.kernels import band, band2d, candidates, cells, windows
from dovetail.kernels.windows import Words

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")

Points = list[tuple[float, float]]

numbers = (
    st.integers(-4, 4).map(float)
    | st.sampled_from([0.1, 0.3, -0.0, math.inf, -math.inf, math.nan, 1e308])
    | st.floats()
)
points = st.lists(st.tuples(numbers, numbers), max_size=12)
widths = st.sampled_from([0.0, 0.2, 1.0, 2.0, 100.0, 1e308])
capacities = st.sampled_from([1, 2, 3, 7, 1000])


def columns(rows: Points) -> tuple[np.ndarray, np.ndarray]:
    return np.array([x for x, _ in rows], np.float64), np.array([y for _, y in rows], np.float64)


@given(points, points, widths, widths, capacities)
def test_doubles(left: Points, right: Points, x: float, y: float, capacity: int) -> None:
    (lx, ly), (rx, ry) = columns(left), columns(right)
    join = band2d.prepare(band.prepare_floats(lx, rx, -x, x), band.prepare_floats(ly, ry, -y, y / 2, True, False))

    def good(i: int, j: int) -> bool:
        return abs(left[i][0] - right[j][0]) <= x and -y <= left[i][1] - right[j][1] < y / 2

    check_join(candidates, join, (len(left), len(right)), good, capacity)


@given(points, points, capacities)
def test_codes_and_a_condition_that_is_asked(left: Points, right: Points, capacity: int) -> None:
    ours, theirs = np.arange(len(left)) % 5, np.arange(len(right)) % 7

    def near(i: int, j: int) -> bool:
        return left[i][1] <= right[j][1] + 1.0 and left[i][1] >= right[j][1] - 0.5

    def good(i: int, j: int) -> bool:
        return 0 <= ours[i] - theirs[j] <= 1 and near(i, j)

    y = band.prepare_checked(columns(left)[1], columns(right)[1], -0.5, 1.0, as_check(near))
    join = band2d.prepare(band.prepare(ours, theirs, 0, 1), y)
    check_join(candidates, join, (len(left), len(right)), good, capacity)


@pytest.mark.parametrize("kind", ["lattice", "one point", "cluster", "line", "far"])
@pytest.mark.parametrize("capacity", [17, 100_000])
def test_skew(kind: str, capacity: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "GOOD_VISIT", 2.0)  # so that few points count as many, and cells are divided further
    rng = generator(1)

    def cloud(size: int) -> tuple[Words, Words]:
        if kind == "lattice":  # ties, points on cell borders, points exactly at the distance
            return rng.integers(-4, 4, size), rng.integers(-4, 4, size)
        if kind == "one point":
            return np.zeros(size, np.int64), np.zeros(size, np.int64)
        if kind == "line":
            return np.zeros(size, np.int64), rng.integers(-30, 30, size)
        spread = 10**12 if kind == "far" else 40
        x, y = rng.integers(-spread, spread, size), rng.integers(-spread, spread, size)
        x[: size // 2], y[: size // 2] = 3, -2
        return x, y

    (lx, ly), (rx, ry) = cloud(60), cloud(70)
    join = band2d.prepare(band.prepare(lx, rx, -2, 2), band.prepare(ly, ry, -1, 2))

    def good(i: int, j: int) -> bool:
        return abs(lx[i] - rx[j]) <= 2 and -1 <= ly[i] - ry[j] <= 2

    check_join(candidates, join, (60, 70), good, capacity)


def test_every_chunk_size() -> None:
    x, y = np.arange(12) % 4, np.arange(12) % 3
    join = band2d.prepare(band.prepare(x, x, -1, 1), band.prepare(y, y, -1, 1))
    for capacity in range(1, candidates.count(join) + 2):
        check_join(candidates, join, (12, 12), lambda i, j: abs(x[i] - x[j]) <= 1 and abs(y[i] - y[j]) <= 1, capacity)


@pytest.mark.one_in(3)
def test_more_rows_than_fit_in_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(band, "row_type", lambda rows: np.int64)
    x, y = np.arange(12) % 4, np.arange(12) % 3
    windows_x, windows_y = band.prepare(x, x, -1, 1), band.prepare_floats(y / 2, y / 2, -0.5, 0.5)

    def near_x(i: int, j: int) -> bool:
        return abs(int(x[i]) - int(x[j])) <= 1

    check_join(windows, windows_x, (12, 12), near_x, 5, type_=np.int64)
    join = band2d.prepare(windows_x, windows_y)
    check_join(candidates, join, (12, 12), lambda i, j: near_x(i, j) and abs(y[i] - y[j]) <= 1, 5, type_=np.int64)
