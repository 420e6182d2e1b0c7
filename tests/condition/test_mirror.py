"""A mirrored condition has the mirrored pairs of the original, by definition and with the matchers."""

from collections import Counter

import pyarrow as pa
import pytest
from tests.seed import seeded

from dovetail.columns.batches import one_batch
from dovetail.condition import Opaque, parse
from dovetail.condition.mirror import mirrored
from dovetail.matching import build_matcher
from dovetail.testing import CONDITIONS, definition, random_table

MORE = (
    "TRUE",
    "l.x > r.x",
    "l.k < r.k AND l.x >= r.x AND l.n <= r.n",
    "l.x - r.x BETWEEN -1 AND 2",
    "l.x - r.x > -1 AND l.x - r.x <= 1.5",
    "l.k - r.k > -1 AND l.k - r.k <= 2",
    "l.n BETWEEN r.n - 1 AND r.n + 2.5",
    "l.n - r.n > -1.5 AND l.n - r.n <= 0.5",
    "l.t < r.t + INTERVAL 2 SECONDS AND l.t >= r.t - INTERVAL 1 SECOND",
    "l.d - r.d > INTERVAL -1 DAY AND l.d <= r.d",
    "(l.k, l.n) OVERLAPS (r.k, r.n)",
    "distance(l.k, l.x, r.k, r.x) < 1.5",
    "sqrt(pow(l.x - r.x, 2) + pow(r.n - l.n, 2)) <= 2",
    "l.k = r.k AND l.x > 0 AND r.s >= 'a'",
    "l.k + r.k < 3",
    "FALSE",
)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("on", [*CONDITIONS, *MORE])
def test_pairs_are_turned_round(on: str) -> None:
    rng = seeded(on)
    for _ in range(8):
        left, right = random_table(rng), random_table(rng)
        condition = parse(on, left.schema, right.schema)
        turned = mirrored(condition)
        expected = Counter((b, a) for a, b in definition(left, right, condition))
        assert Counter(definition(right, left, turned)) == expected
        matcher = build_matcher(turned, one_batch(right, right.schema), one_batch(left, left.schema))
        found = [pair for chunk in matcher.pairs(7) for pair in zip(*(rows.tolist() for rows in chunk), strict=True)]
        assert Counter(found) == expected
        assert mirrored(turned) == condition


@pytest.mark.parametrize("low", ["<", "<="])
@pytest.mark.parametrize("high", [">", ">="])
def test_borders_of_intervals_and_rectangles(low: str, high: str) -> None:
    rng = seeded(low + high)
    overlap = f"l.start {low} r.end AND l.end {high} r.start"
    names = ["start", "end", "xmin", "xmax"]
    for on in (overlap, f"{overlap} AND l.xmin <= r.xmax AND l.xmax > r.xmin"):
        left, right = (pa.table({name: [rng.randrange(5) for _ in range(15)] for name in names}) for _ in range(2))
        condition = parse(on, left.schema, right.schema)
        turned = mirrored(condition)
        expected = Counter((b, a) for a, b in definition(left, right, condition))
        matcher = build_matcher(turned, one_batch(right, right.schema), one_batch(left, left.schema))
        found = [pair for chunk in matcher.pairs(7) for pair in zip(*(rows.tolist() for rows in chunk), strict=True)]
        assert Counter(found) == expected
        assert mirrored(turned) == condition


def test_text_for_spark_has_the_other_aliases() -> None:
    schema = pa.schema([("s", pa.string()), ("my key", pa.string())])
    turned = mirrored(parse("levenshtein(l.s, r.`my key`) < 2", schema, schema))
    texts = [arg.sql for arg in turned.residual[0].args if isinstance(arg, Opaque)]
    assert texts == ["levenshtein(r.`s`, l.`my key`)"]
