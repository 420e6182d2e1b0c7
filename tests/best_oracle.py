"""The best partners by definition: take all pairs, filter by the condition, sort, keep the first ones."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

import dovetail
from dovetail.columns.batches import one_batch
from dovetail.columns.taking import take_rows
from dovetail.condition import evaluate, matching, parse, passing
from dovetail.condition.best import Best
from dovetail.core.rows import Side

ROW = "row number"
Keys = dict[tuple[int, int], tuple[Any, ...]]


def numbered(table: pa.Table) -> pa.Table:
    """Append a column of row numbers."""
    return table.append_column(ROW, pa.array(range(table.num_rows), pa.int64()))


def partners(on: str, best: Best, left: pa.Table, right: pa.Table) -> Keys:
    """The sort keys of all pairs that satisfy the condition."""
    condition = parse(on, left.schema, right.schema, in_process=True)
    batches = (one_batch(left, left.schema), one_batch(right, right.schema))
    alive = [passing(condition.filters[side], side, batches[side]) for side in Side]
    rows = [np.arange(b.num_rows) if a is None else np.flatnonzero(a) for a, b in zip(alive, batches, strict=True)]
    lefts, rights = np.repeat(rows[0], len(rows[1])), np.tile(rows[1], len(rows[0]))
    good = matching(condition.conjuncts, batches[0], lefts, batches[1], rights)
    lefts, rights = lefts[good], rights[good]
    values = [
        evaluate(key.value, take_rows(batches[0], lefts), take_rows(batches[1], rights)).to_pylist()
        for key in best.order
    ]
    found: Keys = {}
    for place, pair in enumerate(zip(lefts.tolist(), rights.tolist(), strict=True)):
        mine = [column[place] for column in values]
        if not best.is_distance or all(v is not None and _is_finite(v) for v in mine):
            keys = zip(mine, best.order, strict=True)
            found[pair] = tuple(_sortable(value, key.descending, key.nulls_first) for value, key in keys)
    return found


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


class _Down:
    """A value in descending order."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Down) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Down) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]


def _sortable(value: Any, descending: bool, nulls_first: bool) -> tuple[Any, ...]:
    if value is None:
        return (0 if nulls_first else 2,)
    if isinstance(value, float):
        plain: Any = (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
    else:
        plain = value.encode() if isinstance(value, str) else value
    return (1, _Down(plain) if descending else plain)


def check(found: pa.Table, how: str, best: Best, expected: Keys, lefts: int) -> None:
    """`found` has the row numbers of both sides; rows are in the order of the left side."""
    of_left: dict[int, list[Any]] = defaultdict(list)
    for (left, _), key in expected.items():
        of_left[left].append(key)
    got: dict[int, list[int | None]] = defaultdict(list)
    mine = found[ROW].to_pylist()
    assert mine == sorted(mine)
    for left, right in zip(mine, found[f"{ROW}_right"].to_pylist(), strict=True):
        got[left].append(right)
    for left in range(lefts):
        keys = sorted(of_left[left])
        rows = got[left]
        if not keys:
            assert rows == ([None] if how == "left" else []), (left, rows)
            continue
        size = min(best.top, len(keys))
        while best.ties == "all" and size < len(keys) and keys[size] == keys[size - 1]:
            size += 1
        assert len(set(rows)) == len(rows)
        assert [expected[(left, row)] for row in rows if row is not None] == keys[:size], (left, rows)


def check_join(left: pa.Table, right: pa.Table, on: str, how: str, **options: Any) -> None:
    """Compare a join by the library with the definition."""
    from dovetail.condition.best import parse_best

    mine, theirs = numbered(left), numbered(right)
    wanted = {name: options[name] for name in ("top", "order_by", "ties") if name in options}
    best = parse_best(wanted["top"], wanted.get("order_by"), wanted.get("ties", "any"), (mine.schema, theirs.schema))
    found = dovetail.join(mine, theirs, on, how, **options)
    check(found, how, best, partners(on, best, mine, theirs), left.num_rows)
