"""From a condition and two batches to a matcher.

    filters, null keys --> rows that can match --> codes --> kernel --> candidates --> checks --> pairs

Where equalities stand beside another predicate, rows are grouped by the equal keys first: large groups run the other
predicate's kernel, in small ones every pair is a candidate that is checked.

Of three and more inequalities, two find the candidates: those that the fewest pairs satisfy together. What each lets
through by itself says nothing about that: of columns that rise together, `l.a < r.a AND l.b > r.b` leaves next to none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import pyarrow as pa

from dovetail.condition import Condition, Expression, Less, Predicate, matching
from dovetail.condition.expression import type_of
from dovetail.condition.strategy import Strategy
from dovetail.core.codes import is_fixed
from dovetail.core.rows import Rows, Side
from dovetail.kernels import band, two_inequalities, windows
from dovetail.kernels.windows import Windows
from dovetail.matching.kernel_pairs import Flags, Listed, Prepared
from dovetail.matching.operands import Batches, CodePair, Operands, read_operands
from dovetail.matching.preparation import OPERATORS, prepare_kernel

ROOM = 1 << 18  # candidates that are checked at a time


@dataclass(frozen=True, slots=True)
class Part:
    """Candidates in positions of `rows`, and what they still have to satisfy."""

    listed: Listed
    rows: tuple[Rows, Rows]
    checks: tuple[Expression, ...]


@dataclass(slots=True)
class Parts:
    """A matcher. No pair is a candidate in two parts."""

    batches: Batches
    parts: tuple[Part, ...]
    seen: int = field(default=0, init=False)

    @property
    def exact(self) -> bool:
        return not any(part.checks for part in self.parts)

    def candidates(self) -> int:
        return sum(part.listed.count() for part in self.parts)

    def count(self) -> int:
        return sum(
            sum(len(lefts) for lefts, _ in self._check_pairs(part, ROOM)) if part.checks else part.listed.count()
            for part in self.parts
        )

    def pairs(self, room: int) -> Iterator[tuple[Rows, Rows]]:
        for part in self.parts:
            yield from self._check_pairs(part, min(room, ROOM) if part.checks else room)

    def partnered(self, side: Side) -> Flags:
        """Only where candidates have to be checked are they enumerated."""
        found = np.zeros(self.batches[side].num_rows, np.bool_)
        for part in self.parts:
            if part.checks:
                for pair in self._check_pairs(part, ROOM):
                    found[pair[side]] = True
            else:
                found[part.rows[side][part.listed.partnered(side)]] = True
        return found

    def _check_pairs(self, part: Part, room: int) -> Iterator[tuple[Rows, Rows]]:
        whole = [len(rows) == batch.num_rows for rows, batch in zip(part.rows, self.batches, strict=True)]
        for lefts, rights in part.listed.pairs(room):
            self.seen += len(lefts)
            # Where all rows of a batch are in the part, its positions are their numbers.
            left_rows = lefts if whole[0] else part.rows[0][lefts]
            right_rows = rights if whole[1] else part.rows[1][rights]
            if part.checks:
                good = matching(part.checks, self.batches[0], left_rows, self.batches[1], right_rows)
                left_rows, right_rows = left_rows[good], right_rows[good]
            if len(left_rows):
                yield left_rows, right_rows


SAMPLE = 2048  # rows of a side, of which all pairs are counted to choose between inequalities
FEW_PAIRS = 1 << 14  # any inequalities will do
OWN_CHOICE = 1 << 18  # pairs of equal keys that are worth a choice of their own
LARGE_GROUP = 1 << 14  # pairs of equal keys from which on a kernel is worth its preparation


def build_matcher(condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch) -> Parts:
    """A matcher for two complete sides. Of a disjunction, the alternatives are parts; no pair satisfies two of them."""
    batches = (left, right)
    conditions = condition.branches or (condition,)
    return Parts(batches, tuple(part for one in conditions for part in _parts(one, batches)))


def _parts(condition: Condition, batches: Batches) -> list[Part]:
    strategy = condition.strategy
    operands = read_operands(condition, batches, strategy.equal_keys, strategy.ordered_keys, strategy.is_metric)
    if not operands.complete:  # decimals too long to subtract: every pair is a candidate
        strategy = replace(strategy, kind="none", predicates=())
    if operands.equal is None:
        strategy, operands = _select_predicates(strategy, operands, _driving(strategy, operands))
        kernel = prepare_kernel(strategy, operands, batches)
        return [Part(kernel, operands.rows, condition.conjuncts_beside(strategy.predicates))]
    equal = band.prepare(*operands.equal, 0, 0)
    exact = _same_keys(strategy, equal, operands, batches)
    covered = strategy.equal if exact else ()
    if strategy.kind == "none":
        return [Part(Prepared(windows, equal), operands.rows, condition.conjuncts_beside(covered))]
    return _groups(condition, strategy, equal, operands, batches, exact)


def _driving(strategy: Strategy, operands: Operands) -> tuple[int, ...]:
    """Which of the predicates find candidates: all, but of three and more inequalities only two."""
    if strategy.kind != "two_inequalities":
        return tuple(range(len(strategy.predicates)))
    return most_selective(strategy.predicates, operands.ordered)


def _select_predicates(strategy: Strategy, operands: Operands, chosen: tuple[int, ...]) -> tuple[Strategy, Operands]:
    if len(chosen) == len(strategy.predicates):
        return strategy, operands
    return (
        replace(strategy, predicates=tuple(strategy.predicates[i] for i in chosen)),
        operands._replace(ordered=tuple(operands.ordered[i] for i in chosen)),
    )


def most_selective(inequalities: Sequence[Predicate], codes: Sequence[CodePair]) -> tuple[int, int]:
    """Which two inequalities the fewest pairs satisfy together, by all pairs of some rows; the first, of equals."""
    sizes = [len(column) for column in codes[0]]
    if len(codes) == 2 or sizes[0] * sizes[1] <= FEW_PAIRS:
        return 0, 1
    some = [_some(size, seed) for seed, size in enumerate(sizes)]  # seeds differ: not the same rows of one table
    lefts, rights = ([pair[side][some[side]] for pair in codes] for side in (0, 1))
    operators = [OPERATORS[p.operator] for p in inequalities if isinstance(p, Less)]

    def pairs(i: int, j: int) -> int:
        two = (lefts[i], lefts[j]), (rights[i], rights[j]), (operators[i], operators[j])
        return two_inequalities.count(two_inequalities.prepare(*two, swap=False))

    return min(combinations(range(len(codes)), 2), key=lambda two: pairs(*two))


def _some(size: int, seed: int) -> Rows:
    return np.arange(size) if size <= SAMPLE else np.random.default_rng(seed).choice(size, SAMPLE, replace=False)


def _same_keys(strategy: Strategy, equal: Windows, operands: Operands, batches: Batches) -> bool:
    """Whether all rows that share a code share their keys too, so that no candidate has to be checked.

    Codes of a single key of fixed width are exact. With hashes, every row of a group is compared with one row of the
    other side.
    """
    if len(strategy.equal) == 1 and is_fixed(type_of(strategy.equal[0].left)):
        return True
    partnered = np.flatnonzero(equal.ends > equal.starts)
    starts, ends = equal.starts[partnered], equal.ends[partnered]
    first = np.flatnonzero(np.diff(starts, prepend=-1))  # equal codes have the same window
    widths = (ends - starts)[first]
    offsets = np.arange(int(widths.sum())) - np.repeat(np.cumsum(widths) - widths, widths)
    lefts = np.concatenate([equal.left[partnered], np.repeat(equal.left[partnered[first]], widths)])
    rights = np.concatenate([equal.right[starts], equal.right[np.repeat(starts[first], widths) + offsets]])
    sources = tuple(source for predicate in strategy.equal for source in predicate.source)
    rows = operands.rows
    return bool(matching(sources, batches[0], rows[0][lefts], batches[1], rows[1][rights]).all())


def _groups(
    condition: Condition, strategy: Strategy, equal: Windows, operands: Operands, batches: Batches, exact: bool
) -> list[Part]:
    """One part for all small groups of equal keys, and one for each large group."""
    partnered = np.flatnonzero(equal.ends > equal.starts)
    starts = equal.starts[partnered]
    first = np.flatnonzero(np.diff(starts, prepend=-1))  # equal keys have the same window
    lengths = np.diff(np.append(first, len(starts)))
    widths = (equal.ends - equal.starts)[partnered][first]
    pairs = lengths.astype(np.int64) * widths
    large = pairs >= LARGE_GROUP
    small = partnered[np.repeat(~large, lengths)]
    rest = Windows(equal.left[small], equal.right, equal.starts[small], equal.ends[small])
    covered = strategy.equal if exact else ()
    parts = [Part(Prepared(windows, rest), operands.rows, condition.conjuncts_beside(covered))]
    if not large.any():
        return parts

    def inside(group: int) -> Operands:
        members = partnered[first[group] : first[group] + lengths[group]]
        lefts = equal.left[members]
        rights = equal.right[equal.starts[members[0]] : equal.ends[members[0]]]
        rows = operands.rows[0][lefts], operands.rows[1][rights]
        return Operands(rows, None, tuple((left[lefts], right[rights]) for left, right in operands.ordered))

    of_largest = _driving(strategy, inside(int(np.argmax(pairs))))
    for group in np.flatnonzero(large).tolist():
        mine = inside(group)
        chosen = _driving(strategy, mine) if pairs[group] >= OWN_CHOICE else of_largest
        driving, mine = _select_predicates(strategy, mine, chosen)
        checks = condition.conjuncts_beside((*covered, *driving.predicates))
        parts.append(Part(prepare_kernel(driving, mine, batches), mine.rows, checks))
    return parts
