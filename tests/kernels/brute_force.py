"""Joins by definition: every left row against every right row."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from dovetail.kernels.windows import Check, Flags, Rows

Pairs = list[tuple[int, int]]
Good = Callable[[int, int], bool]


def pairs_where(lefts: int, rights: int, good: Good) -> Pairs:
    return [(i, j) for i in range(lefts) for j in range(rights) if good(i, j)]


def check_join(
    kernel: ModuleType,
    join: Any,
    sizes: tuple[int, int],
    good: Good,
    capacity: int,
    full: bool = True,
    type_: type = np.int32,
) -> None:
    """Compare everything a kernel returns with the definition. `full`: only the last chunk may be smaller."""
    expected = pairs_where(*sizes, good)
    found: Pairs = []
    for left, right in kernel.pairs(join, capacity):
        assert len(left) == len(right)
        assert len(left) == min(capacity, len(expected) - len(found)) if full else 0 < len(left) <= capacity
        assert left.dtype == right.dtype == type_
        found += zip(left.tolist(), right.tolist(), strict=True)
    assert sorted(found) == expected
    assert kernel.count(join) == len(expected)
    lefts, rights = ({pair[side] for pair in expected} for side in (0, 1))
    assert kernel.row_exists(join).tolist() == [i in lefts for i in range(sizes[0])]
    assert kernel.right_exists(join).tolist() == [j in rights for j in range(sizes[1])]
    if hasattr(kernel, "row_counts"):
        assert kernel.row_counts(join).tolist() == [sum(i == left for left, _ in expected) for i in range(sizes[0])]


def as_check(good: Good) -> Check:
    def check(left: Rows, right: Rows) -> Flags:
        return np.array([good(int(i), int(j)) for i, j in zip(left, right, strict=True)], np.bool_)

    return check
