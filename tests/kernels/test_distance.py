import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.brute_force import as_check, check_join
from tests.seed import generator

from dovetail.kernels import candidates, cells
from dovetail.kernels.distance import largest_sum, prepare

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value")

Points = list[tuple[float, float, float]]
ODD = [0.1, 0.3, -0.0, math.inf, -math.inf, math.nan, 1e200, 1.7e308, 1e-160, 1e-170, 5e-324, 2.0**-537, -1e-162]

numbers = st.integers(-5, 5).map(float) | st.sampled_from(ODD) | st.floats()
points = st.lists(st.tuples(numbers, numbers, numbers), max_size=12)
radii = st.sampled_from([-1.0, 0.0, 1.0, math.sqrt(2), 5.0, 1e-200, 1e-161, 1e160, 1e308, 0.1 * math.sqrt(3)])
capacities = st.sampled_from([1, 2, 3, 7, 1000])


def columns(rows: Points, dimensions: int) -> list[np.ndarray]:
    return [np.array([row[k] for row in rows], np.float64) for k in range(dimensions)]


def sum_of_squares(a: tuple[float, ...], b: tuple[float, ...], dimensions: int) -> float:
    x, y, z = (p - q for p, q in zip(a, b, strict=True))
    return x * x + y * y if dimensions == 2 else x * x + y * y + z * z


@pytest.mark.parametrize("dimensions", [2, 3])
@given(points, points, radii | st.floats(0, 10), st.booleans(), capacities)
def test_as_written(dimensions: int, left: Points, right: Points, radius: float, closed: bool, capacity: int) -> None:
    def good(i: int, j: int) -> bool:
        distance = math.sqrt(sum_of_squares(left[i], right[j], dimensions))
        return distance <= radius if closed else distance < radius

    join = prepare(columns(left, dimensions), columns(right, dimensions), radius, closed)
    check_join(candidates, join, (len(left), len(right)), good, capacity)


@pytest.mark.parametrize("dimensions", [2, 3])
@given(points, points, st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 1e-320]), st.booleans(), capacities)
def test_other_spellings(
    dimensions: int, left: Points, right: Points, square: float, closed: bool, capacity: int
) -> None:
    def good(i: int, j: int) -> bool:
        total = sum_of_squares(left[i], right[j], dimensions)
        return total <= square if closed else total < square

    mine, theirs = columns(left, dimensions), columns(right, dimensions)
    join = prepare(mine, theirs, math.sqrt(square), closed, as_check(good))
    check_join(candidates, join, (len(left), len(right)), good, capacity)


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("kind", ["lattice", "one point", "uniform", "cluster"])
def test_skew(dimensions: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "GOOD_VISIT", 2.0)  # so that few points count as many, and cells are divided further
    monkeypatch.setattr(candidates, "BLOCK", 50)
    monkeypatch.setattr(candidates, "KEEP", 1)
    rng = generator(2)

    def cloud(size: int) -> Points:
        scale = {"lattice": 5.0, "one point": 0.0, "uniform": 12.0, "cluster": 30.0}[kind]
        rows = rng.random((size, 3)) * scale
        rows[: size // 2 if kind == "cluster" else 0] /= 20
        return [tuple(row) for row in (np.floor(rows) if kind == "lattice" else rows).tolist()]

    left, right = cloud(50), cloud(60)
    join = prepare(columns(left, dimensions), columns(right, dimensions), 3.0)

    def good(i: int, j: int) -> bool:
        return math.sqrt(sum_of_squares(left[i], right[j], dimensions)) <= 3.0

    for capacity in (13, 100_000):
        check_join(candidates, join, (50, 60), good, capacity)


@given(st.floats(0, 1e308) | st.floats(0, 1e-300), st.booleans())
def test_the_largest_sum_is_the_largest(radius: float, closed: bool) -> None:
    total = largest_sum(radius, closed)
    within = (lambda s: math.sqrt(s) <= radius) if closed else (lambda s: math.sqrt(s) < radius)
    assert total < 0 or within(total)
    above = math.nextafter(max(total, 0.0), math.inf) if total >= 0 else 0.0
    assert math.isinf(above) or not within(above)


def test_the_radius_must_be_a_number() -> None:
    nothing = [np.empty(0), np.empty(0)]
    with pytest.raises(ValueError, match="finite radius; got nan"):
        prepare(nothing, nothing, math.nan)
