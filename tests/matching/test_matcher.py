"""Every class of predicate on random tables, against the definition: pairs, counts, and rows with a partner."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import repeat
from tests.nans import NANS
from tests.random_rows import MORE_CONDITIONS, random_rows
from tests.seed import generator, seeded

from dovetail.columns.batches import one_batch
from dovetail.condition import parse
from dovetail.core.rows import Side
from dovetail.matching import build_matcher
from dovetail.matching import matcher as build
from dovetail.testing import CONDITIONS, definition, random_table


@pytest.mark.one_in(2)
@pytest.mark.parametrize("on", [*CONDITIONS, *MORE_CONDITIONS])
@pytest.mark.parametrize("large_group", [1, 1 << 14])
def test_finds_what_the_definition_finds(on: str, large_group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "LARGE_GROUP", large_group)
    if large_group == 1:
        monkeypatch.setattr(build, "VERY_LARGE_GROUP", 30)
        monkeypatch.setattr(build, "FEW_CANDIDATES", 0)
    rng = seeded(f"{on}{large_group}")
    for _ in range(repeat(48)):
        left, right = random_rows(rng), random_rows(rng)
        batches = (one_batch(left, left.schema), one_batch(right, right.schema))
        matcher = build_matcher(parse(on, left.schema, right.schema), *batches)
        expected = definition(left, right, on)
        found = [pair for chunk in matcher.pairs(7) for pair in zip(*(rows.tolist() for rows in chunk), strict=True)]
        assert Counter(found) == Counter(expected)
        assert matcher.count() == len(expected)
        for side in Side:
            partnered = {pair[side] for pair in expected}
            assert matcher.partnered(side).tolist() == [row in partnered for row in range(batches[side].num_rows)]


@pytest.mark.parametrize("type_", NANS, ids=str)
@pytest.mark.parametrize(
    ("on", "pairs"),
    [("l.x = r.x", 26), ("l.x = r.x AND l.i = r.i", 6), ("l.x <=> r.x", 26), ("l.x <= r.x", 31), ("l.x < r.x", 5)],
)
def test_nans_of_any_bits_are_equal(type_: pa.DataType, on: str, pairs: int) -> None:
    """Five NaNs and a smaller number."""
    numbers = pa.array(np.append(NANS[type_], type_.to_pandas_dtype()(1)))
    batch = pa.record_batch({"x": numbers, "i": range(6)})
    assert build_matcher(parse(on, batch.schema, batch.schema), batch, batch).count() == pairs


def test_keys_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.matching.equal_keys.hash_column", lambda column: build.np.zeros(len(column), "int64"))
    rng = seeded(5)
    left, right = random_table(rng, 20), random_table(rng, 20)
    for on in ("l.s = r.s", "l.s = r.s AND l.k < r.k"):
        matcher = build_matcher(parse(on, left.schema, right.schema), left.to_batches()[0], right.to_batches()[0])
        assert matcher.count() == len(definition(left, right, on))


def rising_together(seed: int, rows: int = 600) -> pa.Table:
    """b is correlated with a, and e with d in every other group; c is random and passes slightly less than half."""
    rng = generator(seed)
    a, d, g = rng.random(rows), rng.random(rows), rng.integers(0, 2, rows)
    noise = rng.normal(0, 1e-3, (2, rows))
    columns = {
        "a": a,
        "b": np.where(g == 0, a, rng.random(rows)) + noise[0],
        "c": rng.random(rows) + (0.1 if seed == 0 else 0),
        "d": d,
        "e": np.where(g == 1, d, rng.random(rows)) + noise[1],
        "g": g,
    }
    return pa.table({**columns, "x": a, "y": a + noise[0], "s": np.char.mod("%.9f", a + noise[1])})


@pytest.mark.parametrize(
    ("on", "two"),
    [
        ("l.x < r.x AND l.y > r.y AND l.c < r.c", "l.x < r.x AND l.y > r.y"),
        ("l.c < r.c AND l.y >= r.y AND l.x <= r.x", "l.x <= r.x AND l.y >= r.y"),
        ("l.c < r.c AND l.d > r.d AND l.y < r.y AND l.e > r.e AND l.x > r.x", "l.x > r.x AND l.y < r.y"),
        ("l.c < r.c AND l.x > r.x AND l.s < r.s", "l.x > r.x AND l.s < r.s"),  # strings have their own codes
        ("l.c < r.c AND l.y > r.y AND l.g <= r.g AND l.x < r.x AND l.g = r.g", "l.x < r.x AND l.y > r.y AND l.g = r.g"),
    ],
)
def test_the_two_inequalities_that_leave_the_fewest_pairs_find_the_candidates(
    on: str, two: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "VERY_LARGE_GROUP", 1)
    tables = rising_together(0), rising_together(1)
    sides = [one_batch(table, table.schema) for table in tables]
    fewest = build_matcher(parse(two, *(table.schema for table in tables)), *sides).count()
    matcher = build_matcher(parse(on, *(table.schema for table in tables)), *sides)
    assert matcher.candidates() == fewest
    assert matcher.count() == len(definition(*tables, on)) < fewest
    assert matcher.seen == fewest


def test_groups_of_equal_keys_choose_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one group a and b are correlated, in the other d and e."""
    monkeypatch.setattr(build, "OWN_CHOICE", 1 << 14)
    monkeypatch.setattr(build, "VERY_LARGE_GROUP", 1)
    tables = rising_together(0), rising_together(1)
    sides = [one_batch(table, table.schema) for table in tables]
    on = "l.g = r.g AND l.a < r.a AND l.d < r.d AND l.b > r.b AND l.e > r.e"
    matcher = build_matcher(parse(on, *(table.schema for table in tables)), *sides)
    assert matcher.candidates() < 0.02 * 2 * 300 * 300
    assert matcher.count() == len(definition(*tables, on))
