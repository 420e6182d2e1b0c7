import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.brute_force import check_join
from tests.seed import generator

from dovetail.kernels import rectangles
from dovetail.kernels.rectangles import Closed, Sides, prepare

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # plain Python warns where codes wrap

LEAST, MOST = -(2**63), 2**63 - 1
Boxes = list[tuple[int, int, int, int]]  # x low, x high, y low, y high; low > high is possible

codes = st.integers(-4, 4) | st.sampled_from([LEAST, LEAST + 1, MOST - 1, MOST])
boxes = st.lists(st.tuples(codes, codes, codes, codes), max_size=14)
closed = st.builds(Closed, st.booleans(), st.booleans())
capacities = st.sampled_from([1, 2, 3, 7, 1000])


def columns(rows: Boxes) -> Sides:
    return Sides(*(np.array([row[k] for row in rows], np.int64) for k in range(4)))


def check_rectangles(left: Boxes, right: Boxes, x: Closed, y: Closed, capacity: int) -> None:
    def good(i: int, j: int) -> bool:
        mine, theirs = left[i], right[j]
        for low, high, which in ((0, 1, x), (2, 3, y)):
            if not (mine[low] <= theirs[high] if which.low else mine[low] < theirs[high]):
                return False
            if not (mine[high] >= theirs[low] if which.high else mine[high] > theirs[low]):
                return False
        return True

    join = prepare(columns(left), columns(right), x, y)
    check_join(rectangles, join, (len(left), len(right)), good, capacity, full=False)


@given(boxes, boxes, closed, closed, capacities)
def test_any_codes(left: Boxes, right: Boxes, x: Closed, y: Closed, capacity: int) -> None:
    check_rectangles(left, right, x, y, capacity)


@given(boxes, boxes, closed, closed)
def test_many_strips(left: Boxes, right: Boxes, x: Closed, y: Closed) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rectangles, "DEPTH", 1)
        patch.setattr(rectangles, "SAMPLE", 1)
        patch.setattr(rectangles, "COPIES", 1000)
        check_rectangles(left, right, x, y, 1000)


@pytest.mark.parametrize("kind", ["small", "points", "tall", "wide", "mixed", "equal"])
@pytest.mark.parametrize("y", [Closed(), Closed(False, False), Closed(True, False)])
def test_shapes(kind: str, y: Closed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rectangles, "DEPTH", 4)
    rng = generator(3)

    def cloud(size: int) -> Boxes:
        if kind == "equal":
            return [(1, 5, -2, 3)] * size
        corners = rng.integers(-50, 50, (size, 2))
        most = {"small": (3, 3), "points": (1, 1), "tall": (2, 80), "wide": (80, 2), "mixed": (2, 2)}[kind]
        extents = np.column_stack([rng.integers(0, most[0], size), rng.integers(0, most[1], size)])
        if kind == "mixed":
            extents[: size // 3, 0] = 60
            extents[size // 3 : size // 2, 1] = 60
        ends = corners + extents
        return [(a, b, c, d) for (a, c), (b, d) in zip(corners.tolist(), ends.tolist(), strict=True)]

    left, right = cloud(50), cloud(60)
    check_rectangles(left + left[:5], right + left[:5], Closed(), y, 29)  # some occur on both sides, and twice
