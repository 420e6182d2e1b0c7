"""Nearest joins: against the definition with random types, against SciPy, and errors."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.spatial import cKDTree
from tests.best_oracle import check, numbered, partners
from tests.effort import repeat
from tests.random_rows import random_rows
from tests.seed import generator, seeded

import dovetail
from dovetail.condition.best import parse_best
from dovetail.condition.spellings import spell_nearest

KEYS = (None, None, "k", "s", ["k", "s"], "x")


def check_nearest(
    left: pa.Table, right: pa.Table, on: Any, how: str, by: Any, within: Any, k: int, ties: Any = "any", **more: Any
) -> None:
    left, right = numbered(left), numbered(right)
    schemas = (left.schema, right.schema)
    spelled = spell_nearest(schemas, on, by, within, more.get("direction", "both"))
    best = parse_best(k, spelled.order_by, ties, schemas, is_distance=spelled.is_distance)
    found = dovetail.nearest(left, right, on, how, by=by, within=within, k=k, ties=ties, **more)
    check(found, how, best, partners(spelled.on, best, left, right), left.num_rows)


POINTS = {
    "x": 1,
    "k": 2,
    "t": timedelta(seconds=2),
    "n": 1.5,
    "w": 1,
    ("x", "k"): 1.5,
    ("f", "x"): 1,
    ("x", "k", "f"): 2,
    ("xmin", "xmax", "x", "k"): 2,
    ("v",): 1,
    ("u",): 1.5,
}


@pytest.mark.parametrize("case", range(repeat(760)))
def test_random_points_are_the_definition(case: int) -> None:
    rng = seeded("nearest", case)
    on = rng.choice(list(POINTS))
    columns: Any = on if isinstance(on, str) else list(on)
    k, ties = rng.choice((1, 1, 2, 3, 50)), rng.choice(("any", "any", "all"))
    within, how = rng.choice((None, POINTS[on])), rng.choice(("left", "inner"))
    check_nearest(random_rows(rng), random_rows(rng), columns, how, rng.choice(KEYS), within, k, ties)


def _intervals(rng: random.Random) -> pa.Table:
    table = random_rows(rng)
    rows = table.num_rows
    starts = [rng.randrange(30) for _ in range(rows)]
    ends = [start + rng.randrange(6) for start in starts]
    if rng.random() < 0.1 and rows:
        ends[0] = starts[0] - 3
    gaps = [rng.random() < 0.1 for _ in starts]
    kind = rng.choice((pa.int32(), pa.float64(), pa.timestamp("s")))
    for name, numbers in (("first", starts), ("last", ends)):
        values = pa.array([None if gap else value for gap, value in zip(gaps, numbers, strict=True)], pa.int32())
        values = values.cast(pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else values.cast(kind)
        table = table.append_column(name, values)
    return table


@pytest.mark.parametrize("case", range(repeat(570)))
def test_random_intervals_are_the_definition(case: int) -> None:
    rng = seeded("nearest intervals", case)
    left = _intervals(rng)
    right = _intervals(rng)
    for name in ("first", "last"):
        kind = left.schema.field(name).type
        values = right[name].cast(pa.int64()).cast(kind)
        right = right.set_column(right.schema.get_field_index(name), name, values)
    is_time = pa.types.is_timestamp(left.schema.field("first").type)
    within = rng.choice((None, "2 seconds" if is_time else 2))
    direction = rng.choice(("both", "both", "upstream", "downstream"))
    k = rng.choice((1, 1, 2))
    how = rng.choice(("left", "inner"))
    check_nearest(left, right, ("first", "last"), how, rng.choice(KEYS), within, k, direction=direction)


def _clouds(seed: str, rows: int, dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    """Points that are uniform, clustered, at few positions, and far away."""
    rng = generator("clouds", seed, dimensions)

    def side() -> np.ndarray:
        even = rng.random((rows // 4, dimensions))
        clusters = rng.normal(0.5, 1e-5, (rows // 4, dimensions))
        few = rng.integers(0, 5, (rows // 4, dimensions)) / 4
        far = rng.normal(0, 100, (rows // 4, dimensions))
        return np.concatenate([even, clusters, few, far])

    return side(), side()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dimensions", [2, 3, 5, 12])
def test_the_same_distances_as_scipy(dimensions: int, threads: int) -> None:
    left, right = _clouds("scipy", 8000, dimensions)
    names = [f"x{d}" for d in range(dimensions)]
    tables = [pa.table(dict(zip(names, points.T, strict=True))) for points in (left, right)]
    for k in (1, 5):
        found = dovetail.nearest(*tables, names, k=k, threads=threads)
        mine = np.stack([found[name].to_numpy() for name in names], axis=1)
        theirs = np.stack([found[f"{name}_right"].to_numpy() for name in names], axis=1)
        wanted = cKDTree(right).query(left, k=k)[0].reshape(-1)
        np.testing.assert_allclose(np.sqrt(((mine - theirs) ** 2).sum(axis=1)), wanted, rtol=1e-12)


def test_many_equal_points() -> None:
    points = pa.table({"x": np.zeros(20_000), "y": np.zeros(20_000)})
    assert dovetail.nearest(points, points, ["x", "y"], k=3).num_rows == 60_000


def test_vectors_of_many_dimensions() -> None:
    rng = generator("vectors")
    left, right = (rng.integers(-3, 4, (300, 32)).astype(np.float32) for _ in range(2))
    tables = [pa.table({"v": pa.FixedSizeListArray.from_arrays(v.ravel(), 32)}) for v in (left, right)]
    found = dovetail.nearest(*tables, "v", k=4)
    got = np.stack(found["v"].to_pylist()) - np.stack(found["v_right"].to_pylist())
    wanted = np.sort(((left[:, None] - right[None]) ** 2).sum(axis=2), axis=1)[:, :4]
    assert (got**2).sum(axis=1).reshape(300, 4).tolist() == wanted.tolist()


def test_names_that_differ() -> None:
    homes = pa.table({"x": [0.0, 5.0], "y": [0.0, 5.0]})
    stations = pa.table({"lon": [4.0, 1.0], "lat": [4.0, 1.0], "name": ["b", "a"]})
    found = dovetail.nearest(homes, stations, [("x", "lon"), ("y", "lat")])
    assert found["name"].to_pylist() == ["a", "b"]
    spans = pa.table({"start": [10], "end": [12]})
    others = pa.table({"s": [0, 14, 20], "e": [5, 15, 30], "name": ["before", "near", "far"]})
    for direction, names in (("both", ["near"]), ("upstream", ["before"]), ("downstream", ["near"])):
        found = dovetail.nearest(spans, others, (("start", "s"), ("end", "e")), direction=direction)
        assert found["name"].to_pylist() == names


@pytest.mark.parametrize(
    ("on", "options", "message"),
    [
        ("z", {}, "no such column"),
        ([], {}, "on is an empty list"),
        (("x",), {}, "the start and the end of intervals"),
        ("x", {"k": 0}, "k must be an integer, 1 or more"),
        ("x", {"within": "near"}, "within between numbers is a number"),
        ("x", {"direction": "upstream"}, "is for intervals"),
        ("x", {"direction": "up"}, "direction must be one of"),
        ("s", {}, "l.s"),
        ("t", {"within": 3}, "a length of time"),
        ("x", {"how": "right"}, "exchange the inputs"),
    ],
)
def test_what_is_wrong_is_said(on: Any, options: dict[str, Any], message: str) -> None:
    rows = pa.table({"x": [1.0], "s": ["a"], "t": [datetime(2024, 1, 1)]})
    with pytest.raises(dovetail.DovetailError, match=message):
        dovetail.nearest(rows, rows, on, **options)
