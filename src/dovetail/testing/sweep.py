"""Checks that a join can run as a sweep: one pass over both sides in one order, each row leaving once it is expired.

    check_sweep(left, right, on="abs(l.x - r.x) <= 1")                     a condition of Dovetail's own
    check_sweep(left, right, order=…, joins=…, leaves=…)                   custom items and predicates

A sweep finds every pair exactly once if, for every item u and all items v, w of the other side (PMJ, section 3.2),

    (1)   w >= v and leaves(u, v)            =>   not joins(u, w)          an expired item has no more partners
    (2)   u <= w <= v and not leaves(u, v)   =>   not leaves(u, w)         an item in the sweep area has never left
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import one_batch
from dovetail.condition import Condition, matching, parse
from dovetail.core.rows import Side
from dovetail.core.tables import arrow_table
from dovetail.matching.sweep_order import Items, SweepOrder

Order = Callable[[Any], Any]
Predicate = Callable[[Any, Any], bool]


def check_sweep(
    left: Any,
    right: Any,
    on: Any = None,
    *,
    order: Order | None = None,
    joins: Predicate | None = None,
    leaves: Predicate | None = None,
) -> None:
    """Check that conditions (1) and (2) hold on these rows, and that the sweep matches the definition.

    For a condition, `left` and `right` are tables. Otherwise they are sequences of items; `order` is the sort key,
    joins(left item, right item) says which items match, and leaves(u, v) whether u can be removed when the sweep
    reaches v.
    """
    if on is not None:
        _check_condition(arrow_table(left), arrow_table(right), on)
        return
    assert order is not None, "give a condition, or order, joins and leaves"
    assert joins is not None, "give a condition, or order, joins and leaves"
    assert leaves is not None, "give a condition, or order, joins and leaves"
    _check_rule(left, right, order, joins, leaves)


def _check_rule(left: Sequence[Any], right: Sequence[Any], order: Order, joins: Predicate, leaves: Predicate) -> None:
    for side, mine, theirs in ((Side.LEFT, left, right), (Side.RIGHT, right, left)):
        sorted_others = sorted(theirs, key=order)
        for u in mine:
            gone: Any = None  # the first item that removes u
            for _, group in groupby(sorted_others, key=order):
                ties = list(group)
                going = [v for v in ties if leaves(u, v)]
                if order(ties[0]) >= order(u):
                    stays = [v for v in ties if v not in going]
                    earlier = [gone] if gone is not None and order(gone) >= order(u) else going
                    assert not (earlier and stays), (
                        f"condition (2): {u!r} leaves at {earlier[0]!r}, but stays at {stays[0]!r}, not before it"
                    )
                if gone is None and going:
                    gone = going[0]
                if gone is not None:
                    for w in ties:
                        matches = joins(u, w) if side is Side.LEFT else joins(w, u)
                        assert not matches, f"condition (1): {u!r} leaves at {gone!r}, but matches {w!r}"
    expected = Counter((i, j) for i, a in enumerate(left) for j, b in enumerate(right) if joins(a, b))
    found = Counter(sweep(left, right, order, joins, leaves))
    assert found == expected, f"missing: {sorted(expected - found)}, too many: {sorted(found - expected)}"


def sweep(
    left: Sequence[Any], right: Sequence[Any], order: Order, joins: Predicate, leaves: Predicate
) -> list[tuple[int, int]]:
    """The sweep itself, item by item: insert, remove, query (PMJ, Figs. 3 and 4)."""
    coming = sorted(
        [(order(item), side, number) for side, items in enumerate((left, right)) for number, item in enumerate(items)]
    )
    areas: tuple[list[int], list[int]] = ([], [])
    sides = (left, right)
    found = []
    for _, side, number in coming:
        item, other = sides[side][number], 1 - side
        areas[side].append(number)
        areas[other][:] = [u for u in areas[other] if not leaves(sides[other][u], item)]
        for u in areas[other]:
            pair = (number, u) if side == 0 else (u, number)
            if joins(left[pair[0]], right[pair[1]]):
                found.append(pair)
    return found


def _check_condition(left: pa.Table, right: pa.Table, on: Any) -> None:
    """Check a condition: rows become intervals of its sweep order."""
    condition = on if isinstance(on, Condition) else parse(on, left.schema, right.schema, in_process=True)
    assert SweepOrder.exists(condition), f"{condition.text} has no sweep order"
    batches = [one_batch(table, table.schema) for table in (left, right)]
    sweep_order = SweepOrder(condition)
    sweep_order.learn(*batches)
    items = []
    for side in Side:
        lines = sweep_order.lines(side, batches[side])
        assert (lines.starts <= lines.ends).all(), "an interval ends before it starts"
        rows = np.arange(batches[side].num_rows) if lines.rows is None else lines.rows
        items.append(list(zip(lines.starts.tolist(), lines.ends.tolist(), rows.tolist(), strict=True)))
    matches = _matches(condition, sweep_order, batches, items)
    _check_rule(
        items[0],
        items[1],
        order=lambda item: item[0],
        joins=lambda a, b: (a, b) in matches,
        leaves=lambda u, v: bool(u[1] < v[0]),
    )
    # Every pair is found once, for any number of intervals per row.
    met = Counter((a[2], b[2]) for a, b in matches)
    left_rows = np.repeat(np.arange(left.num_rows), right.num_rows)
    right_rows = np.tile(np.arange(right.num_rows), left.num_rows)
    alive = [{item[2] for item in side} for side in items]
    good = matching(condition.conjuncts, batches[0], left_rows, batches[1], right_rows)
    pairs = [(a, b) for a, b in zip(left_rows[good].tolist(), right_rows[good].tolist(), strict=True)]
    expected = Counter(pair for pair in pairs if pair[0] in alive[0] and pair[1] in alive[1])
    assert met == expected, f"missing: {sorted(expected - met)}, too many: {sorted(met - expected)}"


def _matches(condition: Condition, order: SweepOrder, batches: list[pa.RecordBatch], items: list[Any]) -> set[Any]:
    """Which items match: their rows match, and the pair belongs to these two intervals."""
    lefts, rights = (
        np.repeat(np.arange(len(items[0])), len(items[1])),
        np.tile(np.arange(len(items[1])), len(items[0])),
    )
    rows = [np.array([item[2] for item in side], np.int64) for side in items]
    good = matching(condition.conjuncts, batches[0], rows[0][lefts], batches[1], rows[1][rights])
    lefts, rights = lefts[good], rights[good]
    placed = [
        Items(
            batches[side].take(pa.array(rows[side])), *(np.array([i[k] for i in items[side]], np.int64) for k in (0, 1))
        )
        for side in Side
    ]
    belongs = order.belongs(placed[0], placed[1], lefts, rights)
    if belongs is not None:
        lefts, rights = lefts[belongs], rights[belongs]
    return {(items[0][a], items[1][b]) for a, b in zip(lefts.tolist(), rights.tolist(), strict=True)}
