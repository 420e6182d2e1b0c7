"""Which predicates of a condition find the candidates; all others only check them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.condition.expression import Expression, type_of
from dovetail.condition.predicates import (
    Band,
    Distance,
    Equal,
    Less,
    NotEqual,
    Overlap,
    Predicate,
    Rectangles,
)
from dovetail.core.codes import is_fixed

KeyPair = tuple[Expression, Expression]
"""What is compared with what: of the left side, of the right side."""

KINDS = (
    "rectangles",
    "distance",
    "two_bands",
    "band",
    "overlap",
    "two_inequalities",
    "one_inequality",
    "unequal",
    "none",
)


@dataclass(frozen=True, slots=True)
class Strategy:
    """How candidates are found: by equal keys, if there are any, and within them by another class of predicate."""

    kind: str  # the class besides equality, one of KINDS
    equal: tuple[Equal, ...]
    predicates: tuple[Predicate, ...]  # of that class

    @property
    def equal_keys(self) -> list[KeyPair]:
        return [(p.left, p.right) for p in self.equal]

    @property
    def ordered_keys(self) -> list[KeyPair]:
        return [pair for predicate in self.predicates for pair in keys_of(predicate)]

    @property
    def is_metric(self) -> bool:
        """Whether it matters how far apart keys are, besides which is larger."""
        return self.kind in ("distance", "two_bands", "band")


def keys_of(predicate: Predicate) -> list[KeyPair]:
    """What is compared with what."""
    match predicate:
        case Rectangles(x, y):
            return keys_of(x) + keys_of(y)
        case Overlap(left, right):
            return [(left.low, right.high), (left.high, right.low)]
        case Distance(left, right):
            return list(zip(left, right, strict=True))
    return [(predicate.left, predicate.right)]


def choose_strategy(predicates: Sequence[Predicate]) -> Strategy:
    """The class of predicate with the best kernel, beside all equalities."""
    kind, driving = _class([p for p in predicates if not isinstance(p, Equal)])
    return Strategy(kind, tuple(p for p in predicates if isinstance(p, Equal)), driving)


def _class(predicates: Sequence[Predicate]) -> tuple[str, tuple[Predicate, ...]]:
    """The first of KINDS that the predicates allow."""
    rectangles = [p for p in predicates if isinstance(p, Rectangles)]
    distances = [p for p in predicates if isinstance(p, Distance)]
    bands = [p for p in predicates if isinstance(p, Band)]
    overlaps = [p for p in predicates if isinstance(p, Overlap)] + [p.x for p in rectangles]
    less = tuple(p for p in predicates if isinstance(p, Less))
    unequal = [p for p in predicates if isinstance(p, NotEqual)]
    for rectangle in rectangles:
        if _is_plain(rectangle.x) and _is_plain(rectangle.y):
            return "rectangles", (rectangle,)
    if distances:
        return "distance", (distances[0],)
    if len(bands) > 1:
        return "two_bands", tuple(bands[:2])
    if bands:
        return "band", (bands[0],)
    if overlaps:
        return "overlap", (overlaps[0],)
    if less:
        return ("one_inequality" if len(less) == 1 else "two_inequalities"), less
    return ("unequal", (unequal[0],)) if unequal else ("none", ())


def _is_plain(overlap: Overlap) -> bool:
    """Whether all four borders have codes that can be compared with each other."""
    borders = {type_of(e) for e in (overlap.left.low, overlap.left.high, overlap.right.low, overlap.right.high)}
    return len(borders) == 1 and is_fixed(borders.pop())
