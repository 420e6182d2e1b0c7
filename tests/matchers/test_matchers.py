"""Every class of predicate, over random tables, against the definition: pairs, counts, and who has a partner."""

import random
from collections import Counter

import pytest
from tests.random_rows import MORE_CONDITIONS, random_rows

from dovetail.batch import Side, one_batch
from dovetail.condition import parse
from dovetail.matchers import build, build_matcher
from dovetail.testing import CONDITIONS, definition, random_table


@pytest.mark.parametrize("on", [*CONDITIONS, *MORE_CONDITIONS])
@pytest.mark.parametrize("large_group", [1, 1 << 14])
def test_finds_what_the_definition_finds(on: str, large_group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "LARGE_GROUP", large_group)
    rng = random.Random(f"{on}{large_group}")
    for _ in range(12):
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


def test_keys_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.matchers.operands.hash_column", lambda column: build.np.zeros(len(column), "int64"))
    rng = random.Random(5)
    left, right = random_table(rng, 20), random_table(rng, 20)
    for on in ("l.s = r.s", "l.s = r.s AND l.k < r.k"):
        matcher = build_matcher(parse(on, left.schema, right.schema), left.to_batches()[0], right.to_batches()[0])
        assert matcher.count() == len(definition(left, right, on))
