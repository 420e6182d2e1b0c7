"""Inequalities by definition, and the checks that both kernels for inequalities must pass."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.cross import GREATER, GREATER_EQUAL, LESS, LESS_EQUAL

Words = NDArray[np.int64]
Table = NDArray[np.bool_]  # [left row, right row]: whether this is a pair

MEANING: dict[int, Callable[[Any, Any], Any]] = {
    LESS: operator.lt,
    LESS_EQUAL: operator.le,
    GREATER: operator.gt,
    GREATER_EQUAL: operator.ge,
}
EXTREMES = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]


def table(left: Words, right: Words, op: int) -> Table:
    good: Table = MEANING[op](left[:, None], right[None, :])
    return good


def check_pairs(kernel: ModuleType, join: Any, good: Table, capacity: int) -> None:
    """Check that each pair occurs once, and that only the last chunk is not full."""
    expected = list(zip(*(rows.tolist() for rows in np.nonzero(good)), strict=True))
    found: list[tuple[int, int]] = []
    for lefts, rights in kernel.pairs(join, capacity):
        assert len(lefts) == len(rights) == min(capacity, len(expected) - len(found))
        found += zip(lefts.tolist(), rights.tolist(), strict=True)
    assert sorted(found) == expected


def check_summaries(kernel: ModuleType, join: Any, good: Table, values: Words) -> None:
    """Check everything that is computed without enumerating the pairs."""
    assert kernel.count(join) == good.sum()
    assert kernel.row_counts(join).tolist() == good.sum(axis=1).tolist()
    assert kernel.row_exists(join).tolist() == good.any(axis=1).tolist()
    assert kernel.right_exists(join).tolist() == good.any(axis=0).tolist()
    assert kernel.row_sums(join, values).tolist() == (good @ values).tolist()
    assert kernel.row_sums(join, values * 0.5).tolist() == (good @ (values * 0.5)).tolist()
    for codes in (values, ~values):
        expected = [_smallest(np.flatnonzero(partners), codes) for partners in good]
        assert kernel.smallest_partners(join, codes).tolist() == expected


def _smallest(partners: NDArray[np.intp], codes: Words) -> int:
    return int(partners[np.argmin(codes[partners])]) if len(partners) else -1
