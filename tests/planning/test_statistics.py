"""Statistics of all rows, estimated from samples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dovetail.condition import parse
from dovetail.core.rows import Side
from dovetail.planning.statistics import LENGTHS, measure

POINTS = pa.record_batch({"k": [1, 2], "t": [5, 900]})
RANGES = pa.record_batch({"k": [1, 1, 1, 2], "s": [0, 10, None, 7], "e": [4, 60, 1000, 5]})


@pytest.mark.parametrize(
    ("on", "longest"),
    [
        ("l.t >= r.s AND l.t < r.e", (50.0,)),
        ("l.t < r.e AND l.t >= r.s", (50.0,)),
        ("l.k = r.k AND l.t BETWEEN r.s AND r.e", (50.0,)),
        ("l.t < r.s AND l.k > r.e", ()),
    ],
)
def test_how_long_intervals_are(on: str, longest: tuple[float, ...]) -> None:
    """Also for intervals in two inequalities. Rows with null keys are ignored."""
    reach = measure(parse(on, POINTS.schema, RANGES.schema), Side.RIGHT, RANGES)
    assert reach is not None
    assert reach.longest == longest


def test_intervals_of_the_left_side() -> None:
    reach = measure(parse("l.s <= r.t AND r.t <= l.e", RANGES.schema, POINTS.schema), Side.LEFT, RANGES)
    assert reach is not None
    assert reach.longest == (50.0,)


def test_how_many_intervals_are_about_how_long() -> None:
    condition = parse("l.t >= r.s AND l.t < r.e", POINTS.schema, RANGES.schema)
    reach = measure(condition, Side.RIGHT, RANGES)
    assert reach is not None
    (counts,) = (reach + reach).by_length
    assert {float(LENGTHS[i]): int(counts[i]) for i in np.flatnonzero(counts)} == {0.0: 2, 4.0: 2, 32.0: 2}
