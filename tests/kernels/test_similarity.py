import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.kernels.brute_force import as_check, check_join
from tests.seed import generator

from dovetail.kernels import candidates, similarity
from dovetail.kernels.similarity import prepare
from dovetail.kernels.windows import Rows

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value")

ODD = [0.1, -0.0, math.inf, -math.inf, math.nan, 1e200, 1.7e308, 1e-160, 1e-170, 5e-324, 2.0**-537, 1e8]

numbers = st.integers(-2, 2).map(float) | st.sampled_from(ODD) | st.floats()
radii = st.sampled_from([-1.0, 0.0, 1.0, math.sqrt(2), math.sqrt(5), 3.0, 1e-200, 1e-161, 1e160, 1e308])
capacities = st.sampled_from([1, 3, 1000])


def matrices(dimensions: int) -> st.SearchStrategy[np.ndarray]:
    return arrays.arrays(np.float64, st.tuples(st.integers(0, 9), st.just(dimensions)), elements=numbers)


def sum_of_squares(a: Rows, b: Rows) -> float:
    total = 0.0
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        total += (x - y) * (x - y)
    return total


@pytest.mark.one_in(2)
@pytest.mark.parametrize("tiles", [False, True])
@pytest.mark.parametrize("dimensions", [2, 3, 5])
@given(st.data(), radii | st.floats(0, 10), st.booleans(), capacities)
def test_as_written(
    dimensions: int, tiles: bool, data: st.DataObject, radius: float, closed: bool, capacity: int
) -> None:
    left, right = data.draw(matrices(dimensions)), data.draw(matrices(dimensions))

    def good(i: int, j: int) -> bool:
        distance = math.sqrt(sum_of_squares(left[i], right[j]))
        return distance <= radius if closed else distance < radius

    join = prepare(left, right, radius, closed, tiles=tiles)
    check_join(candidates, join, (len(left), len(right)), good, capacity)


@pytest.mark.parametrize("tiles", [False, True])
@given(matrices(4), matrices(4), st.sampled_from([0.0, 1.0, 2.0, 5.0, 1e-320]), st.booleans())
def test_other_spellings(tiles: bool, left: Rows, right: Rows, square: float, closed: bool) -> None:
    def good(i: int, j: int) -> bool:
        total = sum_of_squares(left[i][::-1], right[j][::-1])
        return total <= square if closed else total < square

    join = prepare(left, right, math.sqrt(square), closed, as_check(good), tiles)
    check_join(candidates, join, (len(left), len(right)), good, 1000)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("tiles", [False, True])
@pytest.mark.parametrize("type_", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["lattice", "equal", "spread", "far from zero", "tiny", "huge"])
def test_rows(tiles: bool, type_: type, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "TILE", 16)
    monkeypatch.setattr(similarity, "SAMPLE", 10)
    rng = generator(5)

    def cloud(size: int) -> Rows:
        if kind == "lattice":  # many pairs are exactly at the distance
            return rng.integers(0, 3, (size, 9)).astype(type_)
        if kind == "equal":
            return np.full((size, 9), 0.1, type_)
        rows = rng.normal(size=(size, 9)) * np.array([9.0, 5.0, 2.0, 1.0, 1.0, 0.5, 0.3, 0.2, 0.1])
        offset, scale = {"far from zero": (1e6, 1.0), "tiny": (0.0, 1e-30), "huge": (0.0, 1e30)}.get(kind, (0.0, 1.0))
        return (rows * scale + offset).astype(type_)

    left, right = cloud(40), cloud(70)
    radius = {"lattice": 2.0, "tiny": 4e-30, "huge": 4e30}.get(kind, 4.0)
    join = prepare(left, right, radius, tiles=tiles)

    def good(i: int, j: int) -> bool:
        return math.sqrt(sum_of_squares(left[i], right[j])) <= radius

    check_join(candidates, join, (40, 70), good, 100)


def test_the_choice_follows_the_number_of_candidates() -> None:
    rows = np.random.default_rng(0).random((300, 8))

    def has_tiles(radius: float) -> bool:
        return len(next(prepare(rows, rows, radius).visits()).boxes) == 300  # one tile

    assert not has_tiles(0.01)
    assert has_tiles(2.0)


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"equally many numbers, two or more; got shapes \(3, 4\) and \(3, 5\)"):
        prepare(np.zeros((3, 4)), np.zeros((3, 5)), 1.0)
    with pytest.raises(ValueError, match="two or more"):
        prepare(np.zeros((3, 1)), np.zeros((3, 1)), 1.0)
