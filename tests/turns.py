"""Selects the tests that are left to other runs.

Cases of tests marked `one_in(n)` take turns, and so do slow tests: `make test` runs a part of both, chosen by the seed,
so that runs differ and together cover everything. `tests/seconds.json` has the durations of slow tests; a test that is
not in it always runs. `python -m tools.write_seconds` writes it from the reports of a run.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path

import pytest
from tests.effort import some

LONG = 1.5  # seconds that a run spends on a test, over all its cases
MOST_TURNS = 4
SECONDS: dict[str, float] = json.loads((Path(__file__).parent / "seconds.json").read_text(encoding="utf-8"))


def in_turns(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests of this run. Tests without cases take turns with other such tests in their file."""
    cases: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if (turns := _turns(item)) > 1:
            cases[item.nodeid.partition("[")[0], turns].append(item)
    groups: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for (test, turns), of_test in cases.items():
        groups[test if len(of_test) > 1 else test.partition("::")[0], turns] += of_test
    left_out: set[Hashable] = set()
    for (key, turns), group in groups.items():
        missing = [None] * (turns - len(group))  # a group with fewer tests than turns is skipped in some runs
        left_out.update(set(group) - set(some([*group, *missing], of=turns, key=key)))
    for (_, turns), of_test in cases.items():
        kept = [item for item in of_test if item not in left_out]
        share = turns // _marked(of_test[0]) if len(of_test) > 1 else 1
        for item in kept:
            item.user_properties.append(("stands for", min(share, len(of_test) / len(kept))))
    return [item for item in items if item not in left_out]


def _turns(item: pytest.Item) -> int:
    """The number of runs in which a case runs once, on average."""
    if item.get_closest_marker("slow"):
        return 1
    seconds = SECONDS.get(item.nodeid.partition("[")[0], 0.0)
    return _marked(item) * min(MOST_TURNS, max(1, math.ceil(seconds / LONG)))


def _marked(item: pytest.Item) -> int:
    mark = item.get_closest_marker("one_in")
    return int(mark.args[0]) if mark is not None else 1
