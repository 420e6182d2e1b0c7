"""How many cases randomised tests try.

By default each run tries a different part of the cases (tests/seed.py); DOVETAIL_TEST_EFFORT=all (`make test-all`)
tries all of them, and DOVETAIL_FUZZ_CASES (`make fuzz`) sets the number. A part covers some of the combinations
(condition x join type x algorithm), chosen with `some` of a list, or with `@pytest.mark.one_in(3)` for the cases of a
test. DOVETAIL_TEST_KILLS is the number of kills in tests that kill a stream repeatedly.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from tests.seed import seeded

T = TypeVar("T")

ALL = os.environ.get("DOVETAIL_TEST_EFFORT") == "all"
PART = 19


def repeat(cases: int) -> int:
    """The number of these cases to try."""
    return cases if ALL else -(-cases // PART)


CASES = int(os.environ.get("DOVETAIL_FUZZ_CASES", repeat(2000)))
KILLS = int(os.environ.get("DOVETAIL_TEST_KILLS", "4"))
"""Kills per kind of streaming join, in tests that kill repeatedly."""
EXAMPLES = repeat(100)
"""Hypothesis examples per test."""


def some(items: Sequence[T], turn: int = 0, of: int = PART, key: str = "") -> Sequence[T]:
    """One in `of` items, chosen by the seed of the run; the turns 0, 1, 2, … together cover all items."""
    if ALL:
        return items
    places = list(range(len(items)))
    seeded("some", key, len(items), of).shuffle(places)
    return [items[place] for place in sorted(places[turn % of :: of])]


def cases_of(request: pytest.FixtureRequest, test: str, argument: str) -> list[Any]:
    """The cases of a test that will run, so that a fixture of its module computes only these."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.originalname == test]
    return [item.callspec.params[argument] for item in items if item.path == request.path]
