"""Normalisation of a condition into predicates, filters and a residual."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.condition.schemas import LEFT, RIGHT

from dovetail.condition import (
    Band,
    Call,
    Column,
    Condition,
    Distance,
    Equal,
    Interval,
    Less,
    Literal,
    Overlap,
    Rectangles,
    closed_bounds,
    describe,
    parse,
    sides_of,
    text_of,
)
from dovetail.core.rows import Side

# condition: its alternatives, in the order of execution
ALTERNATIVES = {
    "l.x = r.x OR l.s = r.s": ["l.x = r.x", "l.s = r.s"],
    "l.x = r.x OR l.x < r.x": ["l.x < r.x", "l.x = r.x"],
    "(l.x = r.x OR l.s = r.s) AND l.y < r.y": ["l.x = r.x AND l.y < r.y", "l.s = r.s AND l.y < r.y"],
    "NOT (l.x != r.x AND l.s != r.s)": ["l.x = r.x", "l.s = r.s"],
    "l.x IN (r.x, r.y)": ["l.x = r.x", "l.x = r.y"],
    "l.x <=> r.x": ["l.x IS NULL AND r.x IS NULL", "l.x = r.x"],
    "l.x = r.x OR l.x > 5": ["l.x > 5", "l.x = r.x"],
    "(l.x, r.x) IN ((1, 2), (3, 4))": ["l.x = 1 AND r.x = 2", "l.x = 3 AND r.x = 4"],
    "l.x BETWEEN r.x AND r.y OR l.s = r.s": ["l.x >= r.x AND l.x <= r.y", "l.s = r.s"],
    "(l.x = r.x OR l.s = r.s) AND (l.x < r.y OR l.s < r.s)": [
        "l.x = r.x AND (l.x < r.y OR l.s < r.s)",
        "l.s = r.s AND (l.x < r.y OR l.s < r.s)",
    ],
    "l.x = r.x AND (l.x < r.y OR l.s < r.s)": [],  # the equality drives
    "l.x = r.x OR length(concat(l.s, r.s)) = 3": [],  # the second has no kernel
    " OR ".join(f"l.x = r.x + {n}" for n in range(9)): [],  # too many
}


def parsed(text: str) -> Condition:
    return parse(text, LEFT, RIGHT)


def summary(text: str) -> tuple[list[str], list[str], list[str], list[str]]:
    condition = parsed(text)
    filters = [[text_of(f) for f in side] for side in condition.filters]
    residual = [text_of(r) for r in condition.residual]
    return [describe(p) for p in condition.predicates], filters[0], filters[1], residual


# condition: its predicates, as describe() shows them
PREDICATES = {
    # one comparison, the left side on the left
    "l.x = r.x": ["l.x = r.x"],
    "r.x = l.x": ["l.x = r.x"],
    "r.x < l.x": ["l.x > r.x"],
    "r.x >= l.tiny": ["l.tiny <= r.x"],
    "l.x != r.x": ["l.x != r.x"],
    "l.x + 5 < r.x": ["l.x + 5 < r.x"],
    "lower(l.s) = r.s": ["lower(l.s) = r.s"],
    "l.x IN (r.x)": ["l.x = r.x"],
    "soundex(l.s) = soundex(r.s)": ["soundex(l.`s`) = soundex(r.`s`)"],
    # negation
    "NOT l.x < r.x": ["l.x >= r.x"],
    "NOT NOT l.x < r.x": ["l.x < r.x"],
    "NOT (l.x < r.x OR l.y = r.y)": ["l.y != r.y", "l.x >= r.x"],
    "NOT (l.x != r.x)": ["l.x = r.x"],
    # terms of both sides, moved if that is exact
    "l.x - r.x < 5": ["l.x < r.x + 5"],
    "5 > l.x - r.x": ["l.x < r.x + 5"],
    "r.x - l.x < 5": ["l.x > r.x - 5"],
    "l.x - r.x = 5": ["l.x = r.x + 5"],
    "l.x + l.tiny - r.x < r.id + 5": ["l.x + l.tiny < r.x + r.id + 5"],
    "-l.x - r.x > 1": ["l.x < -r.x - 1"],
    "l.x + r.x > 0": ["l.x > -r.x"],
    "l.price - r.price <= 1.5": ["l.price <= r.price + 1.50"],
    "l.t - r.t < INTERVAL 5 MINUTES": ["l.t < r.t + 5 minutes"],
    "l.t - r.sec < INTERVAL 5 MINUTES": ["l.t < r.sec + 5 minutes"],
    "INTERVAL 1 DAY - (l.t - r.t) > INTERVAL 0 DAYS": ["l.t < r.t + 1 day"],
    "l.d - r.d < INTERVAL 3 DAYS": ["l.d < r.d + 3 days"],
    "l.d - r.d < INTERVAL 36 HOURS": ["l.d <= r.d + 1 day"],
    "datediff(l.d, r.d) > 3": ["l.d > r.d + 3 days"],
    "l.d - 3 > r.d": ["l.d - 3 days > r.d"],
    "l.t + r.x * INTERVAL 1 MINUTE < r.t": ["l.t < r.t - 1 minute * r.x"],
    "l.x - r.x < 5.5": ["l.x <= r.x + 5"],
    "l.x - r.x > -5.5": ["l.x >= r.x - 5"],
    "l.x - r.x < 1e3": ["l.x < r.x + 1000"],
    "l.x - r.x < CAST(version() AS INT)": ["l.x < r.x + CAST(version() AS INT)"],
    "l.d + INTERVAL 1 MONTH >= r.d": ["l.d + INTERVAL '1' MONTH >= r.d"],
    # bands
    "abs(l.x - r.x) <= 3": ["-3 <= l.x - r.x <= 3"],
    "abs(r.x - l.x) < 3": ["-3 < l.x - r.x < 3"],
    "3 >= abs(l.x - r.x)": ["-3 <= l.x - r.x <= 3"],
    "NOT abs(l.x - r.x) > 3": ["-3 <= l.x - r.x <= 3"],
    "abs(l.x - r.x + 1) <= 3": ["-4 <= l.x - r.x <= 2"],
    "abs(l.x - r.x) <= 2.5": ["-2 <= l.x - r.x <= 2"],
    "abs(l.x - r.x) < 2.5e0": ["-2 <= l.x - r.x <= 2"],
    "abs(l.price - r.price) < 0.125": ["-0.125 < l.price - r.price < 0.125"],
    "abs(l.y - r.y) <= 0.5": ["-0.5 <= l.y - r.y <= 0.5"],
    "abs(l.x - r.y) <= 3": ["-3.0 <= l.x - r.y <= 3.0"],
    "abs(l.t - r.t) <= INTERVAL 5 MINUTES": ["-5 minutes <= l.t - r.t <= 5 minutes"],
    "abs(datediff(l.d, r.d)) < 3": ["-3 days < l.d - r.d < 3 days"],
    "abs(l.d - r.d) <= INTERVAL 36 HOURS": ["-1 day <= l.d - r.d <= 1 day"],
    "abs(l.x + r.x) <= 3": ["-3 <= l.x - -r.x <= 3"],
    "l.x - r.x BETWEEN -3 AND 5": ["-3 <= l.x - r.x <= 5"],
    "l.x BETWEEN r.x - 3 AND r.x + 5": ["-3 <= l.x - r.x <= 5"],
    "l.x >= r.x - 3 AND l.x < r.x + 5": ["-3 <= l.x - r.x < 5"],
    "l.x + 3 >= r.x AND l.x - 5 <= r.x": ["-3 <= l.x - r.x <= 5"],
    "r.x BETWEEN l.x - 3 AND l.x + 5": ["-5 <= l.x - r.x <= 3"],
    "l.x <= r.x + 5 AND l.flag AND l.x >= r.x": ["0 <= l.x - r.x <= 5"],
    "l.x >= r.x AND l.x <= r.x": ["l.x = r.x"],
    "l.t BETWEEN r.t - INTERVAL 5 MINUTES AND r.t": ["-5 minutes <= l.t - r.t <= 0 seconds"],
    "l.t >= r.t AND l.t < r.t + INTERVAL 1 DAY": ["0 seconds <= l.t - r.t < 1 day"],
    "l.d BETWEEN r.d - 3 AND r.d + 3": ["-3 days <= l.d - r.d <= 3 days"],
    "l.y - r.y BETWEEN -1 AND 2": ["-1.0 <= l.y - r.y <= 2.0"],
    "l.y >= r.y - 1 AND l.y <= r.y + 2": ["-1.0 <= l.y - r.y <= 2.0"],
    "r.y - l.y < 1 AND l.y - r.y < 2": ["-1.0 < l.y - r.y < 2.0"],
    "l.y - r.y = 0.5": ["0.5 <= l.y - r.y <= 0.5"],
    "abs(l.x - r.x) <= 3 AND abs(l.id - r.id) <= 4": ["-3 <= l.x - r.x <= 3", "-4 <= l.id - r.id <= 4"],
    "abs(l.x - r.x) <= l.tiny": ["l.x - l.tiny <= r.x", "l.x + l.tiny >= r.x"],
    "l.u - r.u BETWEEN -3 AND 3": ["-3 <= l.u - r.u <= 3"],
    # overlaps and rectangles
    "l.start < r.end AND l.end > r.start": ["[l.start, l.end] overlaps [r.start, r.end]"],
    "r.start <= l.end AND r.end >= l.start": ["[l.start, l.end] overlaps [r.start, r.end]"],
    "(l.start, l.end) OVERLAPS (r.start, r.end)": ["[l.start, l.end] overlaps [r.start, r.end]"],
    "(r.start, r.end) OVERLAPS (l.start, l.end)": ["[l.start, l.end] overlaps [r.start, r.end]"],
    "(l.t, INTERVAL 1 HOUR) OVERLAPS (r.t, r.t + INTERVAL 1 DAY)": ["[l.t, l.t + 1 hour] overlaps [r.t, r.t + 1 day]"],
    "l.start < r.start + r.x AND l.start + l.x > r.start": [
        "[l.start, l.start + l.x] overlaps [r.start, r.start + r.x]"
    ],
    "l.xmin <= r.xmax AND l.xmax >= r.xmin AND l.ymin <= r.ymax AND l.ymax >= r.ymin": [
        "[l.xmin, l.xmax] overlaps [r.xmin, r.xmax] and [l.ymin, l.ymax] overlaps [r.ymin, r.ymax]"
    ],
    "l.x < r.id AND l.id > r.x": ["[l.x, l.id] overlaps [r.x, r.id]"],
    "l.x < r.x AND l.id > r.id": ["l.x < r.x", "l.id > r.id"],
    "l.start < r.end AND l.end > r.x": ["l.start < r.end", "l.end > r.x"],
    "l.id >= r.start AND l.id <= r.end": ["l.id >= r.start", "l.id <= r.end"],
    # distances
    "distance(l.x, l.y, r.x, r.y) <= 5": ["distance((l.x, l.y), (r.x, r.y)) <= 5.0"],
    "distance(r.x, r.y, l.x, l.y) < 5": ["distance((l.x, l.y), (r.x, r.y)) < 5.0"],
    "sqrt(pow(l.x - r.x, 2) + pow(l.y - r.y, 2)) <= 5": ["distance((l.x, l.y), (r.x, r.y)) <= 5.0"],
    "5 > sqrt(pow(r.x - l.x, 2) + power(l.y - r.y, 2))": ["distance((l.x, l.y), (r.x, r.y)) < 5.0"],
    "pow(pow(l.x - r.x, 2) + pow(l.y - r.y, 2), 0.5) <= 5": ["distance((l.x, l.y), (r.x, r.y)) <= 5.0"],
    "(l.x - r.x) * (l.x - r.x) + (l.y - r.y) * (l.y - r.y) <= 25": ["distance((l.x, l.y), (r.x, r.y)) <= 5.0"],
    "pow(l.x - r.x, 2) + pow(l.y - r.y, 2) + pow(l.id - r.id, 2) < 16": [
        "distance((l.x, l.y, l.id), (r.x, r.y, r.id)) < 4.0"
    ],
    "distance(l.v, r.v) <= 0.5": ["distance((l.v), (r.v)) <= 0.5"],
    "distance(l.x, r.x) <= 2": ["-2.0 <= l.x - r.x <= 2.0"],
    "(l.y - r.y) * (l.y - r.y) < 4": ["-2.0 < l.y - r.y < 2.0"],
    # conditions common to all branches of OR
    "(l.x = r.x AND l.y < r.y) OR (l.x = r.x AND l.y > 5)": ["l.x = r.x"],
    "(l.x = r.x AND l.y < r.y) OR l.x = r.x": ["l.x = r.x"],
    "(l.x = r.x OR FALSE) AND (l.y < r.y OR TRUE)": ["l.x = r.x"],
    "(l.x, l.s) = (r.x, r.s)": ["l.x = r.x", "l.s = r.s"],
}


@pytest.mark.parametrize(("text", "expected"), PREDICATES.items(), ids=PREDICATES)
def test_predicates(text: str, expected: list[str]) -> None:
    predicates, *_ = summary(text)
    assert sorted(predicates) == sorted(expected)


RESIDUAL = {
    "l.x <=> r.x": ["l.x <=> r.x"],
    "l.x = r.x OR l.y = r.y": ["l.x = r.x OR l.y = r.y"],
    "l.y - r.y <= 5": ["l.y - r.y <= 5.0"],  # moving the constant would round differently
    "l.y - r.y >= -1 AND r.y - l.y >= -2": ["l.y - r.y >= -1.0", "r.y - l.y >= -2.0"],  # any NaN satisfies both
    "abs(l.x - r.x) > 3": ["abs(l.x - r.x) > 3"],
    "abs(l.y - r.y) <= CAST('NaN' AS DOUBLE)": ["abs(l.y - r.y) <= NaN"],
    "abs(l.y - r.y) <= l.y": ["abs(l.y - r.y) <= l.y"],
    "distance(l.x, l.y, r.x, r.y) > 5": ["distance(l.x, l.y, r.x, r.y) > 5.0"],
    "distance(l.x, l.y, r.x, r.y) < -1": ["distance(l.x, l.y, r.x, r.y) < -1.0"],
    "distance(l.x, r.y, r.x, l.y) < 1": ["distance(l.x, r.y, r.x, l.y) < 1.0"],
    "l.x * r.x < 5": ["l.x * r.x < 5"],
    "l.x + r.y < 5": ["l.x + r.y < 5.0"],
    "concat(l.s, r.s) = 'ab'": ["concat(l.s, r.s) = 'ab'"],
    "equal_null(l.x, r.x)": ["equal_null(l.`x`, r.`x`)"],
    "NOT equal_null(l.x, r.x)": ["NOT equal_null(l.`x`, r.`x`)"],
    "l.x IN (r.x, r.id)": ["l.x IN (r.x, r.id)"],
    "(l.x, l.y) < (r.x, r.y)": ["l.x < r.x OR l.x = r.x AND l.y < r.y"],
    "CASE WHEN l.flag THEN l.x = r.x ELSE FALSE END": ["CASE WHEN l.flag THEN l.x = r.x ELSE FALSE END"],
    "NOT (l.x = r.x AND l.y = r.y)": ["l.x != r.x OR l.y != r.y"],
    "current_date() > DATE '2020-01-01'": ["current_date() > DATE '2020-01-01'"],
}


@pytest.mark.parametrize(("text", "expected"), RESIDUAL.items(), ids=RESIDUAL)
def test_residual(text: str, expected: list[str]) -> None:
    predicates, left, right, residual = summary(text)
    assert (predicates, left, right, residual) == ([], [], [], expected)


FILTERS = {
    "l.x > 5": (["l.x > 5"], []),
    "l.flag": (["l.flag"], []),
    "NOT r.flag": ([], ["NOT r.flag"]),
    "l.x = l.id AND r.s LIKE 'a%'": (["l.x = l.id"], ["r.s LIKE 'a%'"]),
    "l.x IS NOT NULL": (["l.x IS NOT NULL"], []),
    "l.x NOT IN (1, 2)": (["l.x NOT IN (1, 2)"], []),
    "l.x > 5 OR l.y < 2": (["l.x > 5 OR l.y < 2.0"], []),
    "NOT (l.x > 5 OR r.y < 2)": (["l.x <= 5"], ["r.y >= 2.0"]),
    "l.x < 5.5": (["l.x <= 5"], []),
    "l.x != 5.5": (["l.x IS NOT NULL"], []),
    "soundex(l.s) = 'A'": (["soundex(l.`s`) = 'A'"], []),
    "TRUE": ([], []),
    "1 = 1 AND NOT FALSE": ([], []),
    "FALSE": (["FALSE"], ["FALSE"]),
    "1 > 2": (["FALSE"], ["FALSE"]),
    "NULL": (["FALSE"], ["FALSE"]),
    "l.x = 5.5": (["FALSE"], ["FALSE"]),
    "l.x = NULL": (["FALSE"], ["FALSE"]),
    "l.x - r.x < NULL": (["FALSE"], ["FALSE"]),
    "FALSE AND l.x > 5": (["FALSE"], ["FALSE"]),
}


@pytest.mark.parametrize(("text", "expected"), FILTERS.items(), ids=FILTERS)
def test_filters(text: str, expected: tuple[list[str], list[str]]) -> None:
    predicates, left, right, residual = summary(text)
    assert (predicates, (left, right), residual) == ([], expected, [])


@pytest.mark.parametrize(
    ("text", "type_", "bounds"),
    [
        ("abs(l.x - r.x) < 3", pa.int32(), (-2, 2)),
        ("abs(l.x - r.x) <= -1", pa.int32(), (1, -1)),
        ("l.x - r.tiny BETWEEN -3 AND 5", pa.int32(), (-3, 5)),
        ("abs(l.price - r.price) <= 1.5", pa.decimal128(10, 2), (-150, 150)),
        ("abs(l.price - r.price) < 0.125", pa.decimal128(11, 3), (-124, 124)),
        ("abs(l.price - r.x) <= 1", pa.decimal128(12, 2), (-100, 100)),
        ("abs(l.t - r.t) <= INTERVAL 1 SECOND", pa.timestamp("us"), (-1_000_000, 1_000_000)),
        ("abs(l.sec - r.sec) <= INTERVAL 1 MINUTE", pa.timestamp("s"), (-60, 60)),
        ("abs(l.sec - r.sec) < INTERVAL '0.5' SECOND", pa.timestamp("ms"), (-499, 499)),
        ("abs(l.d - r.d) <= INTERVAL 36 HOURS", pa.date32(), (-1, 1)),
        ("abs(l.d - r.d) < INTERVAL 2 DAYS", pa.date32(), (-1, 1)),
        ("abs(l.dur - r.dur) <= INTERVAL 1 SECOND", pa.duration("ms"), (-1000, 1000)),
        ("abs(l.u - r.u) <= 3", pa.uint64(), (-3, 3)),
        ("abs(l.y - r.y) <= 3", pa.float64(), (-3.0, 3.0)),
    ],
)
def test_band_bounds(text: str, type_: pa.DataType, bounds: tuple[float, float]) -> None:
    (band,) = parsed(text).predicates
    assert isinstance(band, Band)
    assert band.left.type == band.right.type == type_
    assert closed_bounds(band) == bounds


def test_a_float32_difference_is_looked_for_a_little_further() -> None:
    (band,) = parsed("abs(l.f - r.f) <= 1").predicates
    assert isinstance(band, Band)
    low, high = closed_bounds(band)
    assert -1.000001 < low < -1
    assert 1 < high < 1.000001


def test_a_band_keeps_both_sources() -> None:
    (band,) = parsed("l.x >= r.x - 3 AND l.x < r.x + 5").predicates
    assert [text_of(s) for s in band.source] == ["l.x >= r.x - 3", "l.x < r.x + 5"]


def test_a_moved_comparison_keeps_its_source() -> None:
    (less,) = parsed("l.x - r.x < 5").predicates
    assert isinstance(less, Less)
    assert [text_of(s) for s in less.source] == ["l.x - r.x < 5"]
    assert (sides_of(less.left), sides_of(less.right)) == ({Side.LEFT}, {Side.RIGHT})


def test_wide_decimals_are_not_moved() -> None:
    wide = pa.schema({"a": pa.decimal128(38, 2)})
    condition = parse("l.a - r.a < 5", wide, wide)
    assert not condition.predicates
    assert len(condition.residual) == 1


def test_overlap_fields() -> None:
    (overlap,) = parsed("l.start <= r.end AND r.start < l.end").predicates
    start, end = (lambda side, n=n: Column(side, n, pa.int64()) for n in ("start", "end"))
    assert overlap == Overlap(
        Interval(start(Side.LEFT), end(Side.LEFT)),
        Interval(start(Side.RIGHT), end(Side.RIGHT)),
        True,
        False,
        overlap.source,
    )
    assert len(overlap.source) == 2


def test_rectangles_keep_four_sources() -> None:
    text = "l.xmin <= r.xmax AND l.xmax >= r.xmin AND l.ymin <= r.ymax AND l.ymax >= r.ymin AND l.id = r.id"
    condition = parsed(text)
    equal, rectangles = condition.predicates
    assert isinstance(equal, Equal)
    assert isinstance(rectangles, Rectangles)
    assert len(rectangles.source) == 4
    assert condition.equalities == (equal,)
    assert len(condition.conjuncts) == 5


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("start", "end"),
        ("start_ts", "end_ts"),
        ("valid_from", "valid_to"),
        ("validFrom", "validTo"),
        ("xmin", "xmax"),
        ("min_x", "max_x"),
        ("lo", "hi"),
        ("since", "until"),
        ("begin_time", "stop_time"),
        ("x0", "x1"),
        ("opened_at", "closed_at"),
    ],
)
def test_interval_names(low: str, high: str) -> None:
    left = pa.schema({low: pa.int64(), high: pa.int64()})
    right = pa.schema({"low": pa.int64(), "high": pa.int64()})
    (overlap,) = parse(f"l.{low} < r.high AND l.{high} > r.low", left, right).predicates
    assert isinstance(overlap, Overlap)
    reversed_names = parse(f"l.{high} < r.high AND l.{low} > r.low", left, right).predicates
    assert [type(p) for p in reversed_names] == [Less, Less]


def test_distance_fields() -> None:
    (distance,) = parsed("distance(l.x, l.y, r.x, r.y) < 2.5").predicates
    assert isinstance(distance, Distance)
    assert [c.type for c in (*distance.left, *distance.right)] == [pa.float64()] * 4
    assert distance.radius == Literal(2.5, pa.float64())
    assert not distance.closed


def test_repeated_conjuncts_count_once() -> None:
    condition = parsed("l.x = r.x AND l.x = r.x AND l.y > 1 AND l.y > 1")
    assert len(condition.predicates) == 1
    assert len(condition.filters[0]) == 1


def test_conjunctions_of_any_width() -> None:
    columns = [Call("=", (Column(Side.LEFT, n), Column(Side.RIGHT, n))) for n in ("x", "y", "s")]
    condition = parse(Call("and", tuple(columns)), LEFT, RIGHT)
    assert [describe(p) for p in condition.predicates] == ["l.x = r.x", "l.y = r.y", "l.s = r.s"]


@pytest.mark.parametrize("on", ALTERNATIVES)
def test_alternatives(on: str) -> None:
    condition = parse(on, LEFT, RIGHT)
    assert [one.text for one in condition.alternatives] == ALTERNATIVES[on]
    assert condition.finds_candidates == bool(ALTERNATIVES[on] or condition.equalities)


def test_later_alternatives_exclude_what_earlier_ones_find() -> None:
    first, second = parse("l.x = r.x OR l.s = r.s", LEFT, RIGHT).alternatives
    assert first.residual == ()
    assert [text_of(part) for part in second.residual] == ["NOT coalesce(l.x = r.x, FALSE)"]


def test_what_one_side_tells_is_a_filter() -> None:
    """It need not be checked on candidates."""
    _, second = parse("l.x > 5 OR l.s = r.s", LEFT, RIGHT).alternatives
    assert second.residual == ()
    assert [text_of(part) for part in second.filters[0]] == ["NOT coalesce(l.x > 5, FALSE)"]


def test_alternatives_that_exclude_each_other_are_not_checked() -> None:
    for on in ("l.x <=> r.x", "(l.x, r.x) IN ((1, 2), (3, 4))", "l.x = r.x OR l.x IS NULL AND r.x IS NULL"):
        assert not any(one.residual for one in parse(on, LEFT, RIGHT).alternatives), on


def test_filters_of_the_whole_are_those_of_every_branch() -> None:
    condition = parse("l.x > 1 AND (l.x = r.x AND r.y < 2 OR l.s = r.s)", LEFT, RIGHT)
    assert [[text_of(f) for f in branch.filters[0]] for branch in condition.branches] == [["l.x > 1"], ["l.x > 1"]]
    assert [len(branch.filters[1]) for branch in condition.branches] == [1, 0]
