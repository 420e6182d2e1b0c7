"""What a condition means to a join: typed predicates that can drive it, and a residual that can only filter.

Every predicate keeps its `source`, the conjuncts as they were written (after type casts). The source is the
definition; the typed view is how to find candidates fast. Where the two could round differently (floating-point
bands and distances), a kernel widens its search a little and lets the source decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf

from dovetail.condition.expression import Expression


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
