"""What becomes of a disjunction: alternatives of which a pair satisfies at most one."""

from __future__ import annotations

import pytest
from tests.condition.schemas import LEFT, RIGHT

from dovetail.condition import parse, text_of

# condition: its alternatives, in the order in which they are joined
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
    """So no candidate has to be checked."""
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
