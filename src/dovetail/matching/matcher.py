"""Builds a matcher from a condition and two batches.

    filters, null keys --> rows that can match --> codes --> kernel --> candidates --> checks --> pairs

With equalities and another predicate, rows are first grouped by the equal keys. Inequalities and bands then read ranges
of each group. Other predicates run their kernel in large groups; in small groups, every pair is a candidate that is
checked.

With three or more inequalities, two find the candidates: the two that the fewest pairs satisfy together. The number of
pairs for each one alone is no guide: if a and b rise together, `l.a < r.a AND l.b > r.b` leaves next to none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations

import numpy as np
import pyarrow as pa

from dovetail.condition import Band, Condition, Expression, Less, Predicate, closed_bounds, matching
from dovetail.condition.predicates import Strategy
from dovetail.core.parts import FINER
from dovetail.core.rows import Rows, Side
from dovetail.core.threads import in_threads
from dovetail.kernels import equality, two_inequalities, within_equals
from dovetail.kernels.equality import Equality
from dovetail.matching.equal_keys import equal_pairs, match_keys
from dovetail.matching.kernel_pairs import Flags, Listed, Prepared
from dovetail.matching.preparation import OPERATORS, Batches, CodePair, Operands, prepare_kernel, read_operands

CHUNK = 1 << 18  # candidates that are checked at a time
FEW_ROWS = 1 << 14  # too few to use another thread


@dataclass(frozen=True, slots=True)
class Part:
    """Candidates by position in `rows`, and the checks that remain."""

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
            sum(len(lefts) for lefts, _ in self._check_pairs(part, CHUNK)) if part.checks else part.listed.count()
            for part in self.parts
        )

    def pairs(self, capacity: int) -> Iterator[tuple[Rows, Rows]]:
        for part in self.parts:
            yield from self._check_pairs(part, min(capacity, CHUNK) if part.checks else capacity)

    def split(self, threads: int) -> list[Parts]:
        if threads == 1 or sum(batch.num_rows for batch in self.batches) < FEW_ROWS:
            return [self]
        return [
            Parts(self.batches, (replace(part, listed=listed),))
            for part in self.parts
            for listed in (part.listed.split(FINER * threads) if len(self.parts) < FINER * threads else [part.listed])
        ]

    def partnered(self, side: Side) -> Flags:
        """Candidates are only enumerated if they have to be checked."""
        found = np.zeros(self.batches[side].num_rows, np.bool_)
        for part in self.parts:
            if part.checks:
                for pair in self._check_pairs(part, CHUNK):
                    found[pair[side]] = True
            else:
                found[part.rows[side][part.listed.partnered(side)]] = True
        return found

    def _check_pairs(self, part: Part, capacity: int) -> Iterator[tuple[Rows, Rows]]:
        whole = [len(rows) == batch.num_rows for rows, batch in zip(part.rows, self.batches, strict=True)]
        for lefts, rights in part.listed.pairs(capacity):
            self.seen += len(lefts)
            # If all rows of a batch are in the part, positions are row numbers.
            left_rows = lefts if whole[0] else part.rows[0][lefts]
            right_rows = rights if whole[1] else part.rows[1][rights]
            if part.checks:
                good = matching(part.checks, self.batches[0], left_rows, self.batches[1], right_rows)
                left_rows, right_rows = left_rows[good], right_rows[good]
            if len(left_rows):
                yield left_rows, right_rows


SAMPLE = 2048  # rows per side whose pairs are all counted to choose between inequalities
FEW_PAIRS = 1 << 14  # with fewer, any inequalities will do
OWN_CHOICE = 1 << 18  # pairs of equal keys from which a group has its own choice of inequalities
LARGE_GROUP = 1 << 14  # pairs of equal keys from which a kernel is worth preparing
VERY_LARGE_GROUP = 1 << 18  # the same if candidates are checked by their codes
FEW_CANDIDATES = 64  # per row; these may all be checked


def build_matcher(condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch) -> Parts:
    """A matcher for two complete sides. The alternatives of a disjunction are parts; no pair satisfies two."""
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
    if strategy.kind == "none":
        listed, exact = equal_pairs(operands.equal)
        return [Part(listed, operands.rows, condition.conjuncts_beside(strategy.equal if exact else ()))]
    join, exact = match_keys(operands.equal)
    covered = strategy.equal if exact else ()
    if strategy.kind in ("one_inequality", "two_inequalities"):
        return _inequalities_within(condition, strategy, join, operands, batches, covered)
    if (narrowed := _band_within(strategy, join, operands)) is not None:
        checks = condition.conjuncts_beside((*covered, *strategy.predicates))
        return [Part(Prepared(equality, narrowed), operands.rows, checks)]
    groups = Groups(join)
    large = groups.pairs >= LARGE_GROUP
    rest = Prepared(equality, groups.without(large))
    parts = [Part(rest, operands.rows, condition.conjuncts_beside(covered))]
    return parts + _large_groups(condition, strategy, groups, large, operands, batches, covered)


def _band_within(strategy: Strategy, join: Equality, operands: Operands) -> Equality | None:
    """The partners by equal keys and a band of integers."""
    if strategy.kind != "band":
        return None
    (predicate,) = strategy.predicates
    assert isinstance(predicate, Band)
    low, high = closed_bounds(predicate)
    if not (isinstance(low, int) and isinstance(high, int)):
        return None
    return within_equals.with_band(join, *operands.ordered[0], low, high)


def _inequalities_within(
    condition: Condition,
    strategy: Strategy,
    join: Equality,
    operands: Operands,
    batches: Batches,
    covered: tuple[Predicate, ...],
) -> list[Part]:
    """Inequalities and equal keys: if a row has few candidates, each one is checked by its codes."""
    checks = condition.conjuncts_beside((*covered, *strategy.predicates))
    operators = [OPERATORS[p.operator] for p in strategy.predicates if isinstance(p, Less)]
    is_wide = equality.count(join) > FEW_CANDIDATES * len(operands.rows[0])
    if is_wide and strategy.kind == "one_inequality":
        narrowed = within_equals.with_inequality(join, *operands.ordered[0], operators[0])
        return [Part(Prepared(equality, narrowed), operands.rows, checks)]
    parts = []
    if is_wide:
        groups = Groups(join)
        large = groups.pairs >= VERY_LARGE_GROUP
        parts = _large_groups(condition, strategy, groups, large, operands, batches, covered)
        join = groups.without(large)
    rest = within_equals.check(join, list(operands.ordered), operators)
    return [Part(Prepared(within_equals, rest), operands.rows, checks), *parts]


def _driving(strategy: Strategy, operands: Operands) -> tuple[int, ...]:
    """The predicates that find candidates: all, but only two of three or more inequalities."""
    if strategy.kind != "two_inequalities":
        return tuple(range(len(strategy.predicates)))
    return most_selective(strategy.predicates, operands.ordered)


def _select_predicates(strategy: Strategy, operands: Operands, chosen: tuple[int, ...]) -> tuple[Strategy, Operands]:
    if len(chosen) == len(strategy.predicates):
        return strategy, operands
    return (
        replace(strategy, predicates=tuple(strategy.predicates[i] for i in chosen)),
        replace(operands, ordered=tuple(operands.ordered[i] for i in chosen)),
    )


def most_selective(inequalities: Sequence[Predicate], codes: Sequence[CodePair]) -> tuple[int, int]:
    """The two inequalities that the fewest pairs satisfy together, in a sample; on a tie, the first ones."""
    sizes = [len(column) for column in codes[0]]
    if len(codes) == 2 or sizes[0] * sizes[1] <= FEW_PAIRS:
        return 0, 1
    some = [_some(size, seed) for seed, size in enumerate(sizes)]  # not the same rows of one table
    lefts, rights = ([pair[side][some[side]] for pair in codes] for side in (0, 1))
    operators = [OPERATORS[p.operator] for p in inequalities if isinstance(p, Less)]

    def pairs(i: int, j: int) -> int:
        two = (lefts[i], lefts[j]), (rights[i], rights[j]), (operators[i], operators[j])
        return two_inequalities.count(two_inequalities.prepare(*two, swap=False))

    return min(combinations(range(len(codes)), 2), key=lambda two: pairs(*two))


def _some(size: int, seed: int) -> Rows:
    return np.arange(size) if size <= SAMPLE else np.random.default_rng(seed).choice(size, SAMPLE, replace=False)


class Groups:
    """The rows of both sides that share equal keys."""

    def __init__(self, join: Equality) -> None:
        self._join = join
        order = np.argsort(join.starts, kind="stable")
        self._members = order[join.ends[order] > join.starts[order]]  # left rows, grouped
        starts = join.starts[self._members]
        self._first = np.flatnonzero(np.diff(starts, prepend=-1))  # equal keys have the same range
        self._lengths = np.diff(np.append(self._first, len(starts)))
        widths = (join.ends - join.starts)[self._members[self._first]]
        self.pairs = self._lengths.astype(np.int64) * widths

    def rows(self, group: int) -> tuple[Rows, Rows]:
        """The left and right rows of a group."""
        start = self._first[group]
        lefts = self._members[start : start + self._lengths[group]]
        return lefts, self._join.rows[self._join.starts[lefts[0]] : self._join.ends[lefts[0]]]

    def without(self, groups: Flags) -> Equality:
        """The pairs of all groups except these."""
        ends = self._join.ends.copy()
        gone = self._members[np.repeat(groups, self._lengths)]
        ends[gone] = self._join.starts[gone]
        return self._join._replace(ends=ends)


def _large_groups(
    condition: Condition,
    strategy: Strategy,
    groups: Groups,
    large: Flags,
    operands: Operands,
    batches: Batches,
    covered: tuple[Predicate, ...],
) -> list[Part]:
    """A kernel for each of these groups of equal keys."""
    if not large.any():
        return []

    def inside(group: int) -> Operands:
        lefts, rights = groups.rows(group)
        rows = operands.rows[0][lefts], operands.rows[1][rights]
        sizes = (len(rows[0]), len(rows[1]))
        return Operands(rows, sizes, None, tuple((left[lefts], right[rights]) for left, right in operands.ordered))

    of_largest = _driving(strategy, inside(int(np.argmax(groups.pairs))))

    def part(group: int) -> Part:
        mine = inside(group)
        chosen = _driving(strategy, mine) if groups.pairs[group] >= OWN_CHOICE else of_largest
        driving, mine = _select_predicates(strategy, mine, chosen)
        checks = condition.conjuncts_beside((*covered, *driving.predicates))
        return Part(prepare_kernel(driving, mine, batches), mine.rows, checks)

    return in_threads([partial(part, group) for group in np.flatnonzero(large).tolist()])
