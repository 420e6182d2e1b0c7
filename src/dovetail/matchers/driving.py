"""Which predicates of a condition find the candidates; all others only check them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.condition import Band, Condition, Equal, Expression, Less, NotEqual, Overlap, Predicate
from dovetail.matchers.operands import KeyPair


@dataclass(frozen=True, slots=True)
class Drive:
    """How candidates are found: by equal keys, if there are any, and within them by another class of predicate."""

    kind: str  # the class besides equality: band, overlap, one_inequality, two_inequalities, unequal, none
    equal: tuple[Equal, ...]
    predicates: tuple[Predicate, ...]  # of that class

    @property
    def equal_keys(self) -> list[KeyPair]:
        return [(p.left, p.right) for p in self.equal]

    @property
    def ordered_keys(self) -> list[KeyPair]:
        keys: list[KeyPair] = []
        for p in self.predicates:
            if isinstance(p, Overlap):
                keys += [(p.left.low, p.right.high), (p.left.high, p.right.low)]
            elif isinstance(p, Band | Less | NotEqual):
                keys.append((p.left, p.right))
        return keys


def choose_drive(condition: Condition) -> Drive:
    """The class of predicate with the best kernel, beside all equalities."""
    kind, predicates = _class([p for p in condition.predicates if not isinstance(p, Equal)])
    return Drive(kind, condition.equalities, predicates)


def _class(predicates: Sequence[Predicate]) -> tuple[str, tuple[Predicate, ...]]:
    bands = [p for p in predicates if isinstance(p, Band)]
    overlaps = [p for p in predicates if isinstance(p, Overlap)]
    less = tuple(p for p in predicates if isinstance(p, Less))
    unequal = [p for p in predicates if isinstance(p, NotEqual)]
    if bands:
        return "band", (bands[0],)
    if overlaps:
        return "overlap", (overlaps[0],)
    if less:
        return ("one_inequality" if len(less) == 1 else "two_inequalities"), less
    return ("unequal", (unequal[0],)) if unequal else ("none", ())


def to_check(condition: Condition, covered: Sequence[Predicate]) -> tuple[Expression, ...]:
    """What remains to be checked on candidates that satisfy the covered predicates."""
    sources = {source for predicate in covered for source in predicate.source}
    return tuple(conjunct for conjunct in condition.conjuncts if conjunct not in sources)
