"""How often randomised tests repeat themselves.

By default they try a part of their cases, which is another one in every run (tests/seed.py); with
DOVETAIL_TEST_EFFORT=all (`make test-all`) all of them, and with DOVETAIL_FUZZ_CASES (`make fuzz`) that number. In a
part, combinations (condition x join type x algorithm) are tried in turns, not all: `some` of a list, or
`@pytest.mark.one_in(3)` for the cases of a test. DOVETAIL_TEST_KILLS says how often a test that kills a stream again
and again does so.
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
    """How many of these cases are tried."""
    return cases if ALL else -(-cases // PART)


CASES = int(os.environ.get("DOVETAIL_FUZZ_CASES", repeat(2000)))
KILLS = int(os.environ.get("DOVETAIL_TEST_KILLS", "10"))
"""Of each kind of streaming join, where a test kills it again and again."""
EXAMPLES = repeat(100)
"""Of Hypothesis, for each test."""


def some(items: Sequence[T], turn: int = 0, of: int = PART, key: str = "") -> Sequence[T]:
    """One item in `of`, chosen by the seed of the run: over the turns 0, 1, 2, … all of them."""
    if ALL:
        return items
    places = list(range(len(items)))
    seeded("some", key, len(items), of).shuffle(places)
    return [items[place] for place in sorted(places[turn % of :: of])]


def cases_of(request: pytest.FixtureRequest, test: str, argument: str) -> list[Any]:
    """The cases of a test that are tried: what a fixture of its module has to compute."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.originalname == test]
    return [item.callspec.params[argument] for item in items if item.path == request.path]
