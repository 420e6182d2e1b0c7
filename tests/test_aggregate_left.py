"""Aggregates that include rows without a partner, and those that choose among partners, against the definition."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from tests.best_oracle import partners
from tests.effort import repeat
from tests.random_rows import MORE_CONDITIONS, random_rows
from tests.seed import seeded

import dovetail
from dovetail.condition.best import Best
from dovetail.testing import CONDITIONS

AGGREGATES = {
    "pairs": "count(*)",
    "some": "count(r.s)",
    "total": "sum(r.k)",
    "own": "sum(l.k)",
    "mean": "avg(r.k)",
    "least": "min(r.s)",
    "most": "max(r.t)",
    "mine": "max(l.k)",
    "when": "max_by(r.s, r.k)",
    "what": "min_by(r.t, r.s)",
    "one": "first(r.w)",
    "another": "last(r.w)",
    "covered": "coverage(r.ymin, r.ymax)",
}


def _least(values: Sequence[Any]) -> Any:
    return min((value for value in values if value is not None), default=None)


def _most(values: Sequence[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def _total(values: Sequence[Any]) -> Any:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def _mean(values: Sequence[Any]) -> Any:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _by(rows: Sequence[dict[str, Any]], value: str, by: str, choose: Callable[..., Any]) -> Any:
    some = [row for row in rows if row[by] is not None]
    if not some:
        return None
    best = choose(row[by] for row in some)
    return next(row[value] for row in some if row[by] == best)


def _covered(rows: Sequence[dict[str, Any]]) -> Any:
    spans = [(row["ymin"], row["ymax"]) for row in rows if row["ymin"] is not None and row["ymax"] is not None]
    return len({step for start, end in spans for step in range(start, end)}) if spans else None


def _expected(lefts: Sequence[dict[str, Any]], pairs: Sequence[tuple[int, int]], right: pa.Table) -> dict[str, Any]:
    """The expected aggregates over the pairs of a group."""
    rows = right.to_pylist()
    partners = [rows[row] for _, row in pairs]
    once = [rows[row] for row in sorted({row for _, row in pairs})]
    mine = [lefts[row]["k"] for row, _ in pairs]
    return {
        "pairs": len(pairs),
        "some": sum(row["s"] is not None for row in partners),
        "total": _total([row["k"] for row in partners]),
        "own": _total(mine),
        "mean": _mean([row["k"] for row in partners]),
        "least": _least([row["s"] for row in partners]),
        "most": _most([row["t"] for row in partners]),
        "mine": _most(mine),
        "when": _by(once, "s", "k", max),
        "what": _by(once, "t", "s", min),
        "one": once[0]["w"] if once else None,
        "another": once[-1]["w"] if once else None,
        "covered": _covered(once),
    }


def _same(found: dict[str, Any], wanted: dict[str, Any], right: pa.Table, partners: Sequence[int]) -> None:
    for name, value in wanted.items():
        got = found[name]
        if name in ("when", "what"):  # any of the tied values
            column, by, choose = ("s", "k", max) if name == "when" else ("t", "s", min)
            rows = [right.slice(row, 1).to_pylist()[0] for row in partners]
            some = [row for row in rows if row[by] is not None]
            best = choose((row[by] for row in some), default=None)
            assert got in {row[column] for row in some if row[by] == best} or (not some and got is None)
        elif isinstance(value, float) and not math.isnan(value):
            assert got == pytest.approx(value)
        else:
            assert got == value, name


@pytest.mark.parametrize("case", range(repeat(760)))
def test_random_joins_are_the_definition(case: int) -> None:
    rng = seeded("left aggregates", case)
    left, right = random_rows(rng), random_rows(rng)
    on = rng.choice((*CONDITIONS, *MORE_CONDITIONS))
    by = rng.choice((None, None, ["l.s"], ["l.k", "l.b"]))
    _check(rng, left, right, on, by)


def _check(rng: random.Random, left: pa.Table, right: pa.Table, on: str, by: list[str] | None) -> None:
    pairs = sorted(partners(on, Best(1), left, right))
    found = dovetail.aggregate(left, right, on, AGGREGATES, "left", by=by, threads=rng.choice((1, 2)))
    lefts = left.to_pylist()
    groups: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    names = [text[2:] for text in by or ()]
    for row in range(left.num_rows):
        key = tuple(lefts[row][name] for name in names) if by else row
        groups[key] += [pair for pair in pairs if pair[0] == row]
    rows = found.to_pylist()
    assert len(rows) == len(groups)
    for number, row in enumerate(rows):
        mine = groups[tuple(row[name] for name in names) if by else number]
        _same(row, _expected(lefts, mine, right), right, [pair[1] for pair in mine])


def test_each_left_row_keeps_its_columns() -> None:
    shops = pd.DataFrame({"shop": ["a", "b"], "near": [2, 0]})
    people = pd.DataFrame({"away": [1, 2, 5], "name": ["x", "y", "z"]})
    found = shops.dovetail.aggregate(people, "r.away <= l.near", {"n": "count(*)", "who": "last(r.name)"}, "left")
    assert found.to_dict("list") == {"shop": ["a", "b"], "near": [2, 0], "n": [2, 0], "who": ["y", None]}


@pytest.mark.parametrize(
    ("aggregates", "options", "message"),
    [
        ({"n": "count(*)"}, {"how": "full"}, "aggregates are over the pairs of an inner join"),
        ({"n": "count(*)"}, {"how": "left", "by": "r.b"}, "Group by columns of the left side"),
        ({"a": "count(*)"}, {"how": "left"}, "two columns called 'a'"),
        ({"n": "max_by(r.b)"}, {}, "a value and what it is chosen by"),
        ({"n": "first(l.a)"}, {}, "over the right side"),
        ({"n": "coverage(r.b)"}, {}, "the start and the end"),
        ({"n": "coverage(r.s, r.s)"}, {}, "coverage needs numbers"),
        ({"n": "median(r.b)"}, {}, "for tables in process also min_by"),
    ],
)
def test_what_is_wrong_is_said(aggregates: dict[str, str], options: dict[str, Any], message: str) -> None:
    left, right = pa.table({"a": [1]}), pa.table({"b": [1], "s": ["x"]})
    with pytest.raises(dovetail.DovetailError, match=message):
        dovetail.aggregate(left, right, "l.a = r.b", aggregates, **options)
