"""Finds the best partners of each left row, with the kernel that suits the condition and the order.

    as of       equal keys, one comparison of times, the nearest time first        one sweep over both sides in order
    nearest     equal keys, the nearest value first                                a sweep in each direction
    points      equal keys, the nearest points first                               a grid, a tree or a matrix product
    intervals   equal keys, the nearest interval first                             a sweep
    extremes    any condition, an order over the right side, one partner           by the kernels of aggregates
    lists       everything else                                                    a list of the best per left row

Only `lists` compares every pair; extremes do so only if candidates have to be checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.columns.taking import take_rows
from dovetail.condition import Condition, evaluate
from dovetail.condition.best import Best, BestKey
from dovetail.condition.expression import columns_of, sides_of
from dovetail.core.codes import LEAST, MOST, is_fixed, order_codes
from dovetail.core.rows import Rows, Side
from dovetail.kernels.best_of_pairs import new_lists, offer
from dovetail.kernels.sorting import row_type
from dovetail.matching.kernel_pairs import NONE, Words
from dovetail.matching.matcher import CHUNK, Parts, build_matcher
from dovetail.matching.near_intervals import near_intervals, read_intervals
from dovetail.matching.near_points import near_points, read_points
from dovetail.matching.nearest_in_order import is_in_order, nearest_in_order
from dovetail.matching.preparation import Batches

NO_ROW = -1
MOST_PLACES = 1 << 26  # in the lists of left rows that are processed together
WAITING = 1 << 22  # pairs that are sorted at a time


class Partners(NamedTuple):
    """Left rows, ascending, repeated for each partner, with ordered partners; NO_ROW if there is none."""

    lefts: Rows
    rights: Rows

    @property
    def found(self) -> Partners:
        """The same without left rows that have no partner."""
        some = self.rights != NO_ROW
        return self if some.all() else Partners(self.lefts[some], self.rights[some])


def best_kernel(condition: Condition, best: Best) -> tuple[str, str]:
    """The kernel that finds the partners, and why."""
    if is_in_order(condition, best):
        return "as_of", "both sides in order, one sweep that remembers the last row of every key"
    if read_points(condition, best) is not None:
        return "points", "cells or a tree around the right points; vectors of many dimensions by a matrix product"
    if read_intervals(condition, best) is not None:
        return "intervals", "both sides in order, one sweep that remembers which interval of every key ends last"
    if _by_extremes(best):
        return "extremes", "the smallest of the partners by the kernel of the condition"
    return "lists", "every pair is looked at; each left row keeps a list of the best so far"


def best_partners(condition: Condition, best: Best, left: pa.RecordBatch, right: pa.RecordBatch) -> Partners:
    """The partners of every left row."""
    batches = (left, right)
    rows = None
    if is_in_order(condition, best):
        rows = nearest_in_order(condition, best, batches)
    elif read_points(condition, best) is not None:
        near = near_points(condition, best, batches)
        if near is not None:
            return _listed(*near)
    elif read_intervals(condition, best) is not None:
        rows = near_intervals(condition, best, batches)
    if rows is None and _by_extremes(best):
        rows = _extremes(condition, best, batches)
    if rows is not None:
        return Partners(np.arange(left.num_rows, dtype=row_type(left.num_rows)), rows)
    block = max(1, MOST_PLACES // best.top)
    found = [_in_lists(condition, best, (left.slice(start, block), right)) for start in range(0, left.num_rows, block)]
    if len(found) == 1:
        return found[0]
    lefts = [block * number + part.lefts for number, part in enumerate(found)]
    empty = np.empty(0, np.int64)
    return Partners(np.concatenate([empty, *lefts]), np.concatenate([empty, *(part.rights for part in found)]))


def _by_extremes(best: Best) -> bool:
    """Whether right rows have ranks, so that the smallest rank wins."""
    return best.top == 1 and best.ties == "any" and all(sides_of(key.value) == {Side.RIGHT} for key in best.order)


def _extremes(condition: Condition, best: Best, batches: Batches) -> Rows:
    """The right row with the smallest rank; ranks are unique."""
    ranks, rows = _ranks(best, batches[1])
    matcher = build_matcher(condition, *batches)
    smallest = np.full(batches[0].num_rows, NONE)
    for part in matcher.parts:
        if part.checks or not part.listed.adds_up:
            for lefts, rights in Parts(matcher.batches, (part,)).pairs(CHUNK):
                np.minimum.at(smallest, lefts, ranks[rights])
        else:
            lefts, rights = part.rows
            smallest[lefts] = np.minimum(smallest[lefts], part.listed.row_smallest(ranks[rights]))
    some = smallest != NONE
    found = np.full(len(smallest), NO_ROW)
    found[some] = rows[smallest[some]]
    return found


def _ranks(best: Best, right: pa.RecordBatch) -> tuple[Words, Words]:
    """The rank of each right row in the order, with distinct ranks for ties; and the row at each rank."""
    if not best.order:
        rows = np.arange(right.num_rows)
        return rows, rows
    keys = [key for one in best.order for key in _columns(one, evaluate(one.value, None, right))]
    rows = np.lexsort(keys[::-1])
    ranks = np.empty_like(rows)
    ranks[rows] = np.arange(len(rows))
    return ranks, rows


def _columns(key: BestKey, values: pa.Array) -> list[Words]:
    """The sort columns of values: a null flag, if there are nulls, and codes."""
    codes = _codes(key, values)
    if not values.null_count:
        return [codes]
    nulls = np.asarray(values.is_null())
    codes = np.where(nulls, 0, codes)
    return [np.where(nulls, -1 if key.nulls_first else 1, 0), codes]


def _codes(key: BestKey, values: pa.Array) -> Words:
    """Codes of these values. If the type has no codes of its own, they are comparable only within this array."""
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.int64)
    if is_fixed(values.type):
        codes = order_codes(values).values
    else:
        codes = np.asarray(pc.rank(values, tiebreaker="dense")).astype(np.int64)
    return ~codes if key.descending else codes


# Lists of the best partners so far.


class _AmbiguousError(Exception):
    """A value has the same code as null."""


def _in_lists(condition: Condition, best: Best, batches: Batches) -> Partners:
    matcher = build_matcher(condition, *batches)
    scored = _Order(best, batches)
    if scored.has_codes:
        try:
            return _by_codes(matcher, best, scored)
        except _AmbiguousError:
            matcher = build_matcher(condition, *batches)
    return _by_sorting(matcher, best, scored)


class _Order:
    """The values that pairs are sorted by."""

    def __init__(self, best: Best, batches: Batches) -> None:
        self._best = best
        columns = [column for key in best.order for column in columns_of(key.value)]
        names = [sorted({column.name for column in columns if column.side is side}) for side in Side]
        self._read = tuple(batch.select(name) for batch, name in zip(batches, names, strict=True))
        self._of_right = None
        if all(sides_of(key.value) == {Side.RIGHT} for key in best.order):
            self._of_right = _dense_ranks(best, batches[1])

    @property
    def has_codes(self) -> bool:
        """Whether the code of a pair does not depend on the other pairs."""
        if self._of_right is not None:
            return True
        order = self._best.order
        return len(order) == 1 and is_fixed(order[0].value.type)

    def codes(self, lefts: Rows, rights: Rows) -> tuple[Words, NDArray[np.bool_] | None]:
        """The codes of pairs, and which of the pairs count; None: all."""
        if self._of_right is not None:
            return self._of_right[rights], None
        (key,) = self._best.order
        values = self._values(key, lefts, rights)
        codes, kept = _codes(key, values), self._measured(values)
        if kept is None and values.null_count:
            nulls = np.asarray(values.is_null())
            of_null = LEAST if key.nulls_first else MOST
            if (codes[~nulls] == of_null).any():
                raise _AmbiguousError
            codes = np.where(nulls, of_null, codes)
        return codes, kept

    def keys(self, lefts: Rows, rights: Rows) -> tuple[list[Words], NDArray[np.bool_] | None]:
        """The sort columns of these pairs, and which of the pairs count; None: all."""
        found: list[Words] = []
        kept = None
        for key in self._best.order:
            values = self._values(key, lefts, rights)
            found += _columns(key, values)
            kept = self._measured(values)
        return found, kept

    def _values(self, key: BestKey, lefts: Rows, rights: Rows) -> pa.Array:
        return evaluate(key.value, take_rows(self._read[0], lefts), take_rows(self._read[1], rights))

    def _measured(self, values: pa.Array) -> NDArray[np.bool_] | None:
        """Which distances are valid numbers."""
        if not self._best.is_distance:
            return None
        if pa.types.is_floating(values.type):
            finite: NDArray[np.bool_] = np.isfinite(np.asarray(values.cast(pa.float64()).fill_null(np.nan)))
            return finite
        return np.asarray(values.is_valid())


def _dense_ranks(best: Best, right: pa.RecordBatch) -> Words:
    """The ranks of right rows in the order; ties have equal ranks."""
    keys = [key for one in best.order for key in _columns(one, evaluate(one.value, None, right))]
    if not keys:
        return np.zeros(right.num_rows, np.int64)
    rows = np.lexsort(keys[::-1])
    changes = np.zeros(len(rows), np.bool_)
    for key in keys:
        changes[1:] |= np.diff(key[rows]) != 0
    ranks = np.empty(len(rows), np.int64)
    ranks[rows] = np.cumsum(changes)
    return ranks


def _by_codes(matcher: Parts, best: Best, order: _Order) -> Partners:
    lists = new_lists(matcher.batches[0].num_rows, best.top)
    for lefts, rights in matcher.pairs(CHUNK):
        codes, kept = order.codes(lefts, rights)
        if kept is not None:
            lefts, rights, codes = lefts[kept], rights[kept], codes[kept]
        offer(lists, lefts, rights, codes)
    if best.ties == "all":
        return _with_ties(matcher, order, lists.sizes, lists.codes, best.top)
    return _listed(lists.rows, lists.sizes)


def _listed(rows: Words, sizes: Words) -> Partners:
    """Converts lists of right rows, one per left row, and their lengths."""
    if rows.shape[1] == 1:
        return Partners(np.arange(len(rows), dtype=row_type(len(rows))), np.where(sizes > 0, rows[:, 0], NO_ROW))
    inside = np.arange(rows.shape[1]) < sizes[:, None]
    inside[:, 0] = True
    rows = np.where(sizes[:, None] > 0, rows, NO_ROW)
    return Partners(np.repeat(np.arange(len(inside)), inside.sum(axis=1)), rows[inside])


def _with_ties(matcher: Parts, order: _Order, sizes: Words, codes: Words, top: int) -> Partners:
    """All pairs that are not worse than the last one of a full list."""
    last = np.where(sizes == top, codes[:, top - 1], MOST)
    parts: list[tuple[Rows, Rows, Words]] = []
    for lefts, rights in matcher.pairs(CHUNK):
        found, kept = order.codes(lefts, rights)
        good = found <= last[lefts]
        if kept is not None:
            good &= kept
        parts.append((lefts[good], rights[good], found[good]))
    empty = np.empty(0, np.int64)
    alone = np.flatnonzero(sizes == 0)
    lefts = np.concatenate([empty, *(part[0] for part in parts), alone])
    rights = np.concatenate([empty, *(part[1] for part in parts), np.full(len(alone), NO_ROW)])
    places = np.concatenate([empty, *(part[2] for part in parts), alone])
    sorting = np.lexsort([rights, places, lefts])
    return Partners(lefts[sorting], rights[sorting])


def _by_sorting(matcher: Parts, best: Best, order: _Order) -> Partners:
    """Repeatedly collects pairs, sorts them and keeps the best: these keys can only be compared with each other."""
    size = matcher.batches[0].num_rows
    lefts = rights = np.empty(0, np.int64)
    waiting: list[tuple[Rows, Rows]] = []
    for pair in matcher.pairs(CHUNK):
        waiting.append(pair)
        if sum(len(one[0]) for one in waiting) > max(WAITING, len(lefts)):
            lefts, rights = _reduce(order, best, [(lefts, rights), *waiting])
            waiting = []
    lefts, rights = _reduce(order, best, [(lefts, rights), *waiting])
    alone = np.ones(size, np.bool_)
    alone[lefts] = False
    rows = np.flatnonzero(alone)
    lefts, rights = np.concatenate([lefts, rows]), np.concatenate([rights, np.full(len(rows), NO_ROW)])
    sorting = np.argsort(lefts, kind="stable")
    return Partners(lefts[sorting], rights[sorting])


def _reduce(order: _Order, best: Best, pairs: Sequence[tuple[Rows, Rows]]) -> tuple[Words, Words]:
    """The best of these pairs, ordered by left row and then by the order."""
    lefts = np.concatenate([pair[0] for pair in pairs]).astype(np.int64)
    rights = np.concatenate([pair[1] for pair in pairs]).astype(np.int64)
    keys, kept = order.keys(lefts, rights)
    if kept is not None:
        lefts, rights, keys = lefts[kept], rights[kept], [key[kept] for key in keys]
    sorting = np.lexsort([rights, *keys[::-1], lefts])
    lefts, rights = lefts[sorting], rights[sorting]
    starts = np.flatnonzero(np.diff(lefts, prepend=-1))
    place = np.arange(len(lefts)) - np.repeat(starts, np.diff(starts, append=len(lefts)))
    good = place < best.top
    if best.ties == "all" and len(lefts):
        last = np.repeat(starts, np.diff(starts, append=len(lefts))) + best.top - 1
        last = np.minimum(last, len(lefts) - 1)  # beyond its left row only if the row has few partners
        tied = np.ones(len(lefts), np.bool_)
        for key in keys:
            tied &= key[sorting] == key[sorting][last]
        good |= tied & (lefts[last] == lefts)
    return lefts[good], rights[good]
