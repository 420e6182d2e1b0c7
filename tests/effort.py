"""How often randomised tests repeat themselves.

By default they try a part of their cases, with DOVETAIL_TEST_EFFORT=all (`make test-all`) all of them, and with
DOVETAIL_FUZZ_CASES (`make fuzz`) as many as it says. In a part, combinations (condition x join type x algorithm) are
tried in turns, not all. DOVETAIL_TEST_KILLS says how often a test that kills a stream again and again does so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

ALL = os.environ.get("DOVETAIL_TEST_EFFORT") == "all"
PART = 19  # a prime: turns through products of short lists meet all of them


def repeat(cases: int) -> int:
    """How many of so many cases are tried."""
    return cases if ALL else -(-cases // PART)


CASES = int(os.environ.get("DOVETAIL_FUZZ_CASES", repeat(2000)))
SEED = int(os.environ.get("DOVETAIL_FUZZ_SEED", "0"))
KILLS = int(os.environ.get("DOVETAIL_TEST_KILLS", "10"))
"""Of each kind of streaming join, where a test kills it again and again."""
EXAMPLES = repeat(100)
"""Of Hypothesis, for each test."""


def some(items: Sequence[T], turn: int, of: int = PART) -> Sequence[T]:
    """One item of every so many: over the turns 0, 1, 2, … all of them."""
    return items if ALL else items[turn % of :: of]
