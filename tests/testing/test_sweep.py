"""The public check of sweeps: it accepts all classes of predicates and reports the fault of invalid sweeps."""

from typing import Any

import pyarrow as pa
import pytest
from tests.seed import seeded

from dovetail.testing import CONDITIONS, check_sweep, random_table

CLASSES = [on for on in CONDITIONS if "!=" not in on and " OR " not in on and "<=>" not in on and "l.x > 1" not in on]


@pytest.mark.parametrize("on", CLASSES)
def test_every_class_of_conditions_is_a_sweep(on: str) -> None:
    rng = seeded(on)
    for _ in range(4):
        check_sweep(random_table(rng), random_table(rng), on)


@pytest.mark.parametrize("dimensions", [2, 5])
def test_points_near_each_other(dimensions: int) -> None:
    rng = seeded(dimensions)
    left, right = (
        pa.table({f"x{d}": [rng.randrange(12) / 2 for _ in range(25)] for d in range(dimensions)}) for _ in range(2)
    )
    squares = " + ".join(f"pow(l.x{d} - r.x{d}, 2)" for d in range(dimensions))
    check_sweep(left, right, f"sqrt({squares}) <= 1")


def intervals(seed: int) -> list[tuple[int, int]]:
    rng = seeded(seed)
    return [(low, low + rng.randrange(4)) for low in (rng.randrange(20) for _ in range(25))]


def overlap(a: Any, b: Any) -> bool:
    return bool(a[0] <= b[1] and b[0] <= a[1])


def test_predicates_of_a_user() -> None:
    check_sweep(intervals(0), intervals(1), order=lambda i: i[0], joins=overlap, leaves=lambda u, v: u[1] < v[0])


@pytest.mark.parametrize(
    ("leaves", "condition"),
    [
        (lambda u, v: u[1] <= v[0], r"\(1\)"),  # intervals that touch match
        (lambda u, v: u[0] < v[0], r"\(1\)"),  # it may still have partners
        (lambda u, v: u[1] < v[0] and v[0] % 2 == 0, r"\(2\)"),  # it returns after it has left
    ],
)
def test_what_breaks_a_sweep_is_named(leaves: Any, condition: str) -> None:
    with pytest.raises(AssertionError, match=condition):
        check_sweep(intervals(0), intervals(1), order=lambda i: i[0], joins=overlap, leaves=leaves)


def test_codes_of_points_are_no_sweep_order() -> None:
    """Near points may have codes without a common prefix, so rows must not leave by the code of the point itself."""

    def code(point: tuple[int, int]) -> str:
        bits = [f"{x:03b}" for x in point]
        return "".join(a + b for a, b in zip(*bits, strict=True))

    rng = seeded(0)
    points = [(rng.randrange(8), rng.randrange(8)) for _ in range(25)]
    with pytest.raises(AssertionError, match=r"condition \(1\)"):
        check_sweep(
            points,
            points,
            order=code,
            joins=lambda a, b: max(abs(a[0] - b[0]), abs(a[1] - b[1])) <= 1,
            leaves=lambda u, v: not code(v).startswith(code(u)),
        )
