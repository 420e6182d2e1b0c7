"""Joins of tables at rest with ordered results, the first of which come early.

    order_by l.x, r.y     left rows by x --> a block of them x all right rows, by kernel --> sorted by (x, y) --> out
                                         --> the next block ...                      until there are enough

The side of the first key drives: its rows are taken in the order of its keys that precede the first key of the other
side. If keys of the other side follow, a block ends where the driving keys change, so all results of a block come
before those of the next. The length of a block is limited by its candidates, and blocks grow, since each one prepares
the other side again. Rows of the other side without a partner have null driving keys: a single virtual driving row
represents all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.columns.batches import one_batch, put_together
from dovetail.columns.taking import take_rows
from dovetail.condition import Condition, evaluate
from dovetail.condition.select import OrderKey
from dovetail.core.codes import is_fixed, order_codes
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Matches, Phase, Rows, Side
from dovetail.errors import InputError
from dovetail.execution.at_rest import FEWEST_PAIRS, FIRST_BLOCK, GROWTH
from dovetail.execution.output import MOST_ROWS, fitting_rows, output_schema, result_batches, row_batches
from dovetail.execution.steps import Step
from dovetail.matching import Parts, build_matcher
from dovetail.planning.plan import JoinPlan
from dovetail.planning.statistics import read_columns

Words = NDArray[np.int64]

MOST_PAIRS = 1 << 22  # candidates per block, unless all its rows are equal in the order
FEWER_PAIRS = 1 << 18  # the same if few rows are wanted
NO_ROW = -1  # in place of a row number, if a result has no row of that side


class OrderedPairs(NamedTuple):
    """Results by the row numbers of each side, and the position of their driving row in the order."""

    rows: tuple[Words, Words]
    places: Words

    @property
    def size(self) -> int:
        return len(self.places)

    def only(self, chosen: NDArray[np.int64] | slice) -> OrderedPairs:
        return OrderedPairs((self.rows[0][chosen], self.rows[1][chosen]), self.places[chosen])


class OrderedJoin:
    """A join of two complete sides with ordered results."""

    def __init__(
        self,
        condition: Condition,
        how: JoinType,
        batches: tuple[pa.RecordBatch, pa.RecordBatch],
        schema: pa.Schema,
        keys: Sequence[OrderKey],
        limit: int | None,
    ) -> None:
        if how.only is not None and any(key.side is not how.only for key in keys):
            raise InputError(f"how={how!r} has rows of {how.only.alias} only: order by columns of that side.")
        self._condition = condition
        self._how = how
        self._batches = batches
        self._schema = schema
        self._limit = limit
        self._driving = keys[0].side
        other = next((i for i, key in enumerate(keys) if key.side is not self._driving), len(keys))
        self._ranks = [(key.side, ranks_of(key, batches[key.side])) for key in keys]
        self._leading, self._following = self._ranks[:other], self._ranks[other:]
        self._read = tuple(batches[side].select(read_columns(condition, side)) for side in Side)
        self._partnered = np.zeros(
            batches[self._driving.other].num_rows, np.bool_
        )  # rows of the other side with a partner
        self._order, self._groups = self._driving_order()

    def steps(self) -> Iterator[Step]:
        """The results in order; rows of a step are final."""
        results = 0
        for done, block in self._blocks():
            wanted = block.size if self._limit is None else min(block.size, self._limit - results)
            for batch in self._gather(block.only(slice(0, wanted))):
                results += batch.num_rows
                yield Step(batch, Phase.ARRIVING, results, None, done=done)
            if results == self._limit:
                return

    # The driving side.

    def _driving_order(self) -> tuple[Words, Words]:
        """The driving rows in order, by row number, and the number of the group of equal keys at each position.

        If rows of the other side may be results alone, a virtual row with null keys represents them.
        """
        leading = [ranks.with_null() if self._pads_other else ranks.of_rows for _, ranks in self._leading]
        order = np.lexsort(leading[::-1]).astype(np.int64)
        changes = np.zeros(len(order), np.bool_)
        for ranks in leading:
            changes[1:] |= np.diff(ranks[order]) != 0
        groups: Words = np.cumsum(changes, dtype=np.int64) if self._following else np.arange(len(order))
        return order, groups

    @property
    def _pads_other(self) -> bool:
        return self._driving.other in self._how.padded

    @property
    def _most_pairs(self) -> int:
        return MOST_PAIRS if self._limit is None else max(FEWER_PAIRS, self._limit)

    def _blocks(self) -> Iterator[tuple[float, OrderedPairs]]:
        """The results of the blocks in order, and how much of the driving side is done."""
        start, size, total = 0, FIRST_BLOCK, len(self._order)
        while start < total:
            stop = self._stop(start, size)
            matcher = self._matcher(start, stop)
            candidates = matcher.candidates()
            fitting = max(1, (stop - start) * self._most_pairs // max(1, candidates))
            if candidates > self._most_pairs and self._stop(start, max(1, fitting // 2)) < stop:
                size = max(1, fitting // 2)
                continue
            for block in self._results(matcher, start, stop):
                yield stop / total, block
            start, size = stop, min(GROWTH * (stop - start), fitting)

    def _stop(self, start: int, size: int) -> int:
        """The end of a block of about this size: groups of equal keys are not split."""
        last = min(start + size, len(self._order)) - 1
        return int(np.searchsorted(self._groups, self._groups[last], side="right"))

    def _matcher(self, start: int, stop: int) -> Parts:
        rows = self._order[start:stop]
        mine = take_rows(self._read[self._driving], rows[rows < self._batches[self._driving].num_rows])
        sides = (mine, self._read[1]) if self._driving is Side.LEFT else (self._read[0], mine)
        return build_matcher(self._condition, *sides)

    # The results of a block.

    def _results(self, matcher: Parts, start: int, stop: int) -> Iterator[OrderedPairs]:
        """All results of the driving rows at these positions, in order."""
        rows = self._order[start:stop]
        virtual = np.flatnonzero(rows == self._batches[self._driving].num_rows)
        places = np.delete(np.arange(start, stop), virtual)  # without the virtual row
        if self._how.only is not None:
            flags = matcher.partnered(self._driving)
            chosen = places[flags if self._how is JoinType.LEFT_SEMI else ~flags]
            yield self._block(chosen, np.full(len(chosen), NO_ROW))
            return
        if self._groups[start] == self._groups[stop - 1] and not self._following and not self._how.padded:
            yield from (self._block(places[mine], theirs) for mine, theirs in self._pairs(matcher, FEWEST_PAIRS))
            return
        found = [self._block(places[:0], places[:0])]
        has_partner = np.zeros(len(places), np.bool_)
        for mine, theirs in self._pairs(matcher, self._most_pairs):
            has_partner[mine] = True
            self._partnered[theirs] = True
            found.append(self._block(places[mine], theirs))
            if self._limit is not None and sum(block.size for block in found) > 2 * max(self._limit, FEWEST_PAIRS):
                found = [self._sort(found).only(slice(0, self._limit))]
        if self._driving in self._how.padded:
            alone = places[~has_partner]
            found.append(self._block(alone, np.full(len(alone), NO_ROW)))
        if len(virtual):
            theirs = np.flatnonzero(~(self._partnered if stop == len(self._order) else self._all_partnered))
            found.append(self._block(np.full(len(theirs), start + virtual[0]), theirs, is_virtual=True))
        yield self._sort(found)

    def _pairs(self, matcher: Parts, capacity: int) -> Iterator[tuple[Rows, Rows]]:
        """Positions in the block, and rows of the other side."""
        for pair in matcher.pairs(capacity):
            yield pair[self._driving], pair[self._driving.other]

    @cached_property
    def _all_partnered(self) -> NDArray[np.bool_]:
        """Which rows of the other side have a partner, considering the whole driving side."""
        return build_matcher(self._condition, *self._read).partnered(self._driving.other)

    def _block(self, places: Words, theirs: Rows, is_virtual: bool = False) -> OrderedPairs:
        mine = np.full(len(places), NO_ROW) if is_virtual else self._order[places]
        rows = (mine, theirs.astype(np.int64))
        return OrderedPairs(rows if self._driving is Side.LEFT else rows[::-1], places)

    def _sort(self, found: list[OrderedPairs]) -> OrderedPairs:
        whole = OrderedPairs(
            (np.concatenate([block.rows[0] for block in found]), np.concatenate([block.rows[1] for block in found])),
            np.concatenate([block.places for block in found]),
        )
        ranks = [ranks.at(whole.rows[side]) for side, ranks in self._following]
        return whole.only(np.lexsort([*ranks[::-1], self._groups[whole.places]]))

    def _gather(self, block: OrderedPairs) -> Iterator[pa.RecordBatch]:
        lefts, rights = block.rows
        if self._how.only is not None:
            yield from row_batches(self._driving, self._batches[self._driving], block.rows[self._driving], self._schema)
        elif not ((lefts == NO_ROW).any() or (rights == NO_ROW).any()):
            yield from result_batches(Matches.pairs(self._batches[0], lefts, self._batches[1], rights), self._schema)
        else:
            most = min(MOST_ROWS, fitting_rows(*self._batches))
            for start in range(0, block.size, most):
                part = block.only(slice(start, start + most))
                positions = [pa.array(rows, mask=rows == NO_ROW) for rows in part.rows]
                columns = [c.take(positions[side]) for side in Side for c in self._batches[side].columns]
                yield put_together(columns, self._schema, part.size)


class OrderCodes(NamedTuple):
    """The ranks of rows by one key; equal values have equal ranks."""

    of_rows: Words
    of_null: int

    def with_null(self) -> Words:
        """The ranks, followed by that of a row with a null key."""
        return np.append(self.of_rows, self.of_null)

    def at(self, rows: Words) -> Words:
        """The ranks of these rows."""
        return self.with_null()[rows]  # NO_ROW is the last one


def sorted_rows(keys: Sequence[OrderKey], batch: pa.RecordBatch) -> Words:
    """The row numbers of one side in the order of its keys; the order of equal rows is kept."""
    return in_order([ranks_of(key, batch).of_rows for key in keys])


def in_order(ranks: Sequence[Words]) -> Words:
    """The row numbers in the order of their ranks, the first of which matter most."""
    return np.lexsort(ranks[::-1]).astype(np.int64)


def ranks_of(key: OrderKey, batch: pa.RecordBatch) -> OrderCodes:
    values = evaluate(key.value, *((batch, None) if key.side is Side.LEFT else (None, batch)))
    if pa.types.is_null(values.type):
        codes = np.zeros(len(values), np.int64)
    elif is_fixed(values.type):
        codes = np.unique(order_codes(values).values, return_inverse=True)[1].astype(np.int64)
    else:
        codes = np.asarray(pc.rank(values, tiebreaker="dense")).astype(np.int64)
    if key.descending:
        codes = -codes
    of_null = int(codes.min(initial=0)) - 1 if key.nulls_first else int(codes.max(initial=0)) + 1
    if values.null_count:
        codes[np.asarray(values.is_null())] = of_null
    return OrderCodes(codes, of_null)


def join_in_order(
    plan: JoinPlan,
    tables: tuple[pa.Table, pa.Table],
    suffix: str,
    keys: Sequence[OrderKey],
    limit: int | None,
) -> Iterator[Step]:
    """The ordered results of two tables. An invalid order is refused at once."""
    schema = output_schema(*plan.condition.schemas, suffix, plan.how)
    batches = (one_batch(tables[0], tables[0].schema), one_batch(tables[1], tables[1].schema))
    join = OrderedJoin(plan.condition, plan.how, batches, schema, keys, limit)
    return join.steps() if limit != 0 else iter(())
