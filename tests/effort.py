"""How often randomised tests repeat themselves.

By default they try a part of their cases, with DOVETAIL_TEST_EFFORT=all (`make test-all`) all of them, and with
DOVETAIL_FUZZ_CASES (`make fuzz`) as many as it says. Every kind of case is tried in each.
"""

from __future__ import annotations

import os

ALL = os.environ.get("DOVETAIL_TEST_EFFORT") == "all"
PART = 4


def repeat(cases: int) -> int:
    """How many of so many cases are tried."""
    return cases if ALL else -(-cases // PART)


CASES = int(os.environ.get("DOVETAIL_FUZZ_CASES", repeat(2000)))
SEED = int(os.environ.get("DOVETAIL_FUZZ_SEED", "0"))
EXAMPLES = repeat(100)
"""Of Hypothesis, for each test."""
