"""A condition in the form that joins use: predicates that can drive it, filters of one input, and a residual.

A strategy selects the predicates that find the candidates; all others are checked on the candidates.

Every predicate keeps its `source`, the conjuncts as written (after type casts). The source is the definition; the typed
view finds candidates fast. Where the two could round differently (floating-point bands and distances), a kernel widens
its search a little and the source decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal as OneOf

import pyarrow as pa

from dovetail.condition.expression import Expression, type_of
from dovetail.core.codes import is_fixed
from dovetail.core.rows import Side

KeyPair = tuple[Expression, Expression]
"""The two operands of a comparison: of the left side, of the right side."""

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
class Equal:
    """left = right, both of one type."""

    left: Expression
    right: Expression
    source: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class NotEqual:
    """left != right, both of one type."""

    left: Expression
    right: Expression
    source: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Less:
    """left operator right, both of one type."""

    left: Expression
    operator: OneOf["<", "<=", ">", ">="]
    right: Expression
    source: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """low <= left - right <= high (strict where not closed). Bounds are numbers, or durations for dates and times."""

    left: Expression
    right: Expression
    low: Expression
    high: Expression
    low_closed: bool
    high_closed: bool
    source: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """Two expressions of one side that bound an interval."""

    low: Expression
    high: Expression


@dataclass(frozen=True, slots=True)
class Overlap:
    """left and right intervals intersect: l.low < r.high and l.high > r.low (<= and >= where closed)."""

    left: Interval
    right: Interval
    left_low_closed: bool  # l.low <= r.high
    left_high_closed: bool  # l.high >= r.low
    source: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Rectangles:
    """Rectangles intersect: an overlap in x and an overlap in y."""

    x: Overlap
    y: Overlap
    source: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Distance:
    """Euclidean distance of two points is at most `radius` (less, where not closed)."""

    left: tuple[Expression, ...]  # coordinates; or one expression of a list type
    right: tuple[Expression, ...]
    radius: Expression
    closed: bool
    source: tuple[Expression, ...]


Predicate = Equal | NotEqual | Less | Band | Overlap | Rectangles | Distance


@dataclass(frozen=True, slots=True)
class Strategy:
    """How candidates are found: by equal keys, if there are any, and within them by one other class of predicate."""

    kind: str  # the class of the predicates besides equality, one of KINDS
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
        """Whether distances between keys matter, besides their order."""
        return self.kind in ("distance", "two_bands", "band")


def keys_of(predicate: Predicate) -> list[KeyPair]:
    """The pairs of expressions that the predicate compares."""
    match predicate:
        case Rectangles(x, y):
            return keys_of(x) + keys_of(y)
        case Overlap(left, right):
            return [(left.low, right.high), (left.high, right.low)]
        case Distance(left, right):
            return list(zip(left, right, strict=True))
    return [(predicate.left, predicate.right)]


def choose_strategy(predicates: Sequence[Predicate]) -> Strategy:
    """All equalities, and the class of predicate with the best kernel."""
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
    """Whether all four bounds have codes that can be compared with each other."""
    borders = {type_of(e) for e in (overlap.left.low, overlap.left.high, overlap.right.low, overlap.right.high)}
    return len(borders) == 1 and is_fixed(borders.pop())


@dataclass(frozen=True, slots=True)
class Condition:
    """A conjunction, bound to two schemas.

    `filters[side]` are conjuncts that read one side only (or none): a row that fails them matches nothing.
    `residual` are conjuncts over both sides that no predicate covers.
    """

    predicates: tuple[Predicate, ...]
    filters: tuple[tuple[Expression, ...], tuple[Expression, ...]]
    residual: tuple[Expression, ...]
    schemas: tuple[pa.Schema, pa.Schema] = field(hash=False)  # types defined in Python have no hash
    text: str = field(compare=False, default="")
    alternatives: tuple[Condition, ...] = field(compare=False, default=(), repr=False)
    """For a disjunction: conditions that find candidates by themselves. A pair satisfies at most one of them; each pair
    that passes the filters and satisfies one is a result. Empty if the conjunction drives the join, or nothing does."""
    strategy: Strategy = field(init=False, compare=False, repr=False)
    """How candidates are found. It follows from the predicates and is computed once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "strategy", choose_strategy(self.predicates))

    @property
    def equalities(self) -> tuple[Equal, ...]:
        return self.strategy.equal

    @property
    def conjuncts(self) -> tuple[Expression, ...]:
        """All conjuncts that a pair must satisfy, as written."""
        return tuple(s for p in self.predicates for s in p.source) + self.residual

    def conjuncts_beside(self, covered: Sequence[Predicate]) -> tuple[Expression, ...]:
        """The conjuncts still to be checked on candidates that satisfy the covered predicates."""
        sources = {source for predicate in covered for source in predicate.source}
        return tuple(conjunct for conjunct in self.conjuncts if conjunct not in sources)

    @property
    def finds_candidates(self) -> bool:
        """Whether candidates can be found without comparing every pair."""
        return bool(self.equalities or self.strategy.predicates or self.alternatives)

    @property
    def branches(self) -> tuple[Condition, ...]:
        """The alternatives, each with the filters of the whole condition."""
        return tuple(
            replace(
                one,
                filters=(self.filters[0] + one.filters[0], self.filters[1] + one.filters[1]),
                schemas=self.schemas,
            )
            for one in self.alternatives
        )

    def schema(self, side: Side) -> pa.Schema:
        return self.schemas[side]
