"""Turns a bound boolean expression into a Condition: predicates that can drive a join, filters, and a residual.

Distances: sqrt((l.x - r.x)² + (l.y - r.y)² + …) <= e in its usual spellings. A square may be written pow(d, 2) or d *
d, the root may be left out (the radius is then the root of the constant), and distance(l.x, l.y, r.x, r.y) is the short
form. In one dimension this is a band, unless the radius is so large or small that its square, or that of similar
differences, overflows or underflows.

Overlaps: two inequalities that say "these intervals intersect", recognised by the names of the columns. Two overlaps of
the same rows are rectangles.

A disjunction becomes alternatives, each of which can drive a join by itself:

    (l.a = r.a OR l.b = r.b) AND l.c < r.c       l.a = r.a AND l.c < r.c
                                                 l.b = r.b AND l.c < r.c, without what the first one finds
    l.a <=> r.a                                  l.a = r.a; both are null
    l.a IN (r.a, r.b)                            l.a = r.a; l.a = r.b, without what the first one finds

No pair satisfies two alternatives: a later one excludes pairs for which an earlier one is true. An earlier one that is
false or null excludes nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import pyarrow as pa

from dovetail.condition import types
from dovetail.condition.bands import INEQUALITIES, as_double, bands, bare, less_of, offset
from dovetail.condition.bind import Binder
from dovetail.condition.expression import (
    COMPARISONS,
    Call,
    Column,
    Expression,
    Literal,
    are_equal,
    columns_of,
    connect,
    sides_of,
    type_of,
)
from dovetail.condition.linear import FALSE, FLIPPED, LEFT, RIGHT, conjuncts, flip, separate_sides, simplify_comparison
from dovetail.condition.predicates import (
    Band,
    Condition,
    Distance,
    Equal,
    Interval,
    Less,
    NotEqual,
    Overlap,
    Predicate,
    Rectangles,
)
from dovetail.condition.render import text_of
from dovetail.core.rows import Side

Ends = tuple[Expression, Expression]  # the operands, without added constants
Conjunction = tuple[Expression, ...]
Points = tuple[tuple[Expression, ...], tuple[Expression, ...]]

PAIRS = (
    *(("start", "end"), ("start", "stop"), ("start", "finish"), ("started", "ended"), ("started", "finished")),
    *(("begin", "end"), ("begin", "stop"), ("first", "last"), ("from", "to"), ("from", "until"), ("from", "till")),
    *(("since", "until"), ("min", "max"), ("minimum", "maximum"), ("lo", "hi"), ("low", "high"), ("lower", "upper")),
    *(("opened", "closed"), ("in", "out"), ("arrival", "departure"), ("enter", "leave"), ("left", "right")),
    *(("bottom", "top"), ("after", "before"), ("effective", "expiry"), ("0", "1"), ("1", "2")),
)
SPLIT = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z])(?=[0-9])")
AFFIXED = 3  # words of at least this length count without a separator, as in xmin
MOST = 8  # alternatives: each is a separate join
STRENGTH = {"none": 0, "unequal": 1, "one_inequality": 2, "two_inequalities": 3, "overlap": 3}
METRIC, EQUALITY = 4, 5
NARROWER = 0.5  # bonus for the same kernel on fewer rows


def normalise(expression: Expression, binder: Binder) -> Condition:
    """The typed predicates, filters and residual of a condition; for a disjunction, also its alternatives."""
    condition = _conjunction([expression], binder)
    found = _alternatives(condition, binder)
    return replace(condition, alternatives=found) if found else condition


def _conjunction(parts: Sequence[Expression], binder: Binder) -> Condition:
    filters: tuple[list[Expression], list[Expression]] = ([], [])
    between: list[Expression] = []
    for conjunct in _conjuncts(connect("and", parts, types.BOOLEAN), binder):
        sides = sides_of(conjunct)
        if conjunct == FALSE:
            for side in Side:
                filters[side].append(conjunct)
        elif len(sides) == 1:
            filters[next(iter(sides))].append(conjunct)
        else:
            between.append(conjunct)
    predicates, residual = _predicates(between, binder)
    return Condition(predicates, (tuple(filters[0]), tuple(filters[1])), residual, binder.schemas)


def _conjuncts(expression: Expression, binder: Binder) -> list[Expression]:
    simple = [simplify_comparison(c, binder) if isinstance(c, Call) else c for c in conjuncts(expression)]
    return [FALSE] if FALSE in simple else simple


def _predicates(between: list[Expression], binder: Binder) -> tuple[tuple[Predicate, ...], tuple[Expression, ...]]:
    found: list[Predicate] = []
    left_over: list[Expression] = []
    for conjunct in between:
        predicate = _comparison(conjunct, binder) or distance(conjunct)
        if predicate is None:
            left_over.append(conjunct)
        else:
            found.append(predicate)
    banded, residual = bands(found, left_over, binder)
    return tuple(overlaps(banded, residual)), tuple(residual)


def _comparison(conjunct: Expression, binder: Binder) -> Equal | NotEqual | Less | None:
    if not isinstance(conjunct, Call) or conjunct.function not in FLIPPED:
        return None
    comparison = separate_sides(conjunct, binder)
    if comparison is None:
        return None
    left, right = comparison.args
    match comparison.function:
        case "=":
            return Equal(left, right, (conjunct,))
        case "!=":
            return NotEqual(left, right, (conjunct,))
    return less_of(comparison, (conjunct,))


def overlaps(predicates: Sequence[Predicate], residual: list[Expression]) -> list[Predicate]:
    """The same predicates with overlaps recognised, also OVERLAPS in the residual, and pairs as rectangles."""
    written = [c for c in residual if isinstance(c, Call) and c.function == "overlaps"]
    explicit = [overlap for call in written if (overlap := _parse_overlaps(call)) is not None]
    for overlap in explicit:
        residual.remove(overlap.source[0])
    found = list(explicit)
    upper = [(p, _ends(p)) for p in predicates if isinstance(p, Less) and p.operator in ("<", "<=")]
    lower = [(p, _ends(p)) for p in predicates if isinstance(p, Less) and p.operator in (">", ">=")]
    used: list[Less] = []
    for a, mine in upper:
        partner = next((b for b, theirs in lower if _is_overlap(mine, theirs) and b not in used), None)
        if partner is not None:
            used += [a, partner]
            found.append(_overlap(a, partner))
    rest = [p for p in predicates if p not in used] if used else list(predicates)
    if len(found) >= 2:
        x, y, *others = found
        return [*rest, Rectangles(x, y, x.source + y.source), *others]
    return [*rest, *found]


def _parse_overlaps(call: Call) -> Overlap | None:
    """Parses (l.start, l.end) OVERLAPS (r.start, r.end)."""
    start, end, other_start, other_end = call.args
    sides = [sides_of(arg) for arg in call.args]
    if sides == [RIGHT, RIGHT, LEFT, LEFT]:
        start, end, other_start, other_end = other_start, other_end, start, end
    elif sides != [LEFT, LEFT, RIGHT, RIGHT]:
        return None
    return Overlap(Interval(start, end), Interval(other_start, other_end), False, False, (call,))


def _overlap(a: Less, b: Less) -> Overlap:
    """l.low < r.high and l.high > r.low as an overlap."""
    return Overlap(
        Interval(a.left, b.left),
        Interval(b.right, a.right),
        a.operator == "<=",
        b.operator == ">=",
        a.source + b.source,
    )


def _ends(less: Less) -> Ends:
    return offset(less.left)[0], offset(less.right)[0]


def _is_overlap(a: Ends, b: Ends) -> bool:
    left, right = (a[0], b[0]), (b[1], a[1])
    if left[0] == left[1] or right[0] == right[1]:
        return False
    if _is_interval(*left) and _is_interval(*right):
        return True
    names = [_name(e) for e in (*left, *right)]
    return None not in names and names[:2] == names[2:]


def _name(expression: Expression) -> str | None:
    return expression.name.casefold() if isinstance(expression, Column) else None


def _is_interval(low: Expression, high: Expression) -> bool:
    match high:
        case Call("+", (a, b)) if low in (bare(a), bare(b)):
            return True
    match low:
        case Call("-", (a, _)) if high == bare(a):
            return True
    if not isinstance(low, Column) or not isinstance(high, Column):
        return False
    roles = set(_roles(high.name))
    return any((word, rest) in roles for other, rest in _roles(low.name) for word in _highs(other))


def _highs(low: str) -> Iterable[str]:
    return (high for word, high in PAIRS if word == low)


def _roles(name: str) -> Iterator[tuple[str, str]]:
    """Every way to split a name into an interval word and the rest: xmin is (min, x), start_ts is (start, ts)."""
    parts = [part.casefold() for part in SPLIT.split(name) if part]
    for i, part in enumerate(parts):
        yield part, "".join(parts[:i] + parts[i + 1 :])
    whole = name.casefold()
    for length in range(AFFIXED, len(whole)):
        yield whole[:length], whole[length:].lstrip("_")
        yield whole[-length:], whole[:-length].rstrip("_")


def distance(conjunct: Expression) -> Distance | Band | None:
    if not isinstance(conjunct, Call) or conjunct.function not in INEQUALITIES:
        return None
    comparison = flip(conjunct) if isinstance(conjunct.args[0], Literal) else conjunct
    operator, (inside, bound) = comparison.function, comparison.args
    if operator not in ("<", "<=") or not isinstance(bound, Literal) or not types.is_number(type_of(bound)):
        return None
    root = _root(_uncast(inside))
    radius = float(bound.value) if root is not None else math.sqrt(max(float(bound.value), 0.0))
    points = _points(_uncast(inside) if root is None else root)
    if points is None or float(bound.value) < 0 or not math.isfinite(radius):
        return None  # no distance is negative: the residual finds nothing
    left, right = points
    closed = operator == "<="
    if len(left) == 1 and not types.is_list(type_of(left[0])):
        if not _can_square(radius, conjunct):
            return None
        low, high = Literal(-radius, types.DOUBLE), Literal(radius, types.DOUBLE)
        return Band(left[0], right[0], low, high, closed, closed, (conjunct,))
    return Distance(left, right, Literal(radius, types.DOUBLE), closed, (conjunct,))


def _can_square(radius: float, conjunct: Expression) -> bool:
    """Whether the squares of the radius and of similar values neither overflow nor underflow."""
    is_single = any(types.plain(type_of(column)) == pa.float32() for column in columns_of(conjunct))
    most = 2.0**60 if is_single else 2.0**500
    return 1 / most <= radius <= most


def _uncast(expression: Expression) -> Expression:
    """The expression without a cast to double: coordinates become doubles anyway."""
    inner = bare(expression)
    match inner:
        case Call("cast", (number,), target) if target == types.DOUBLE and types.is_number(type_of(number)):
            return _uncast(number)
    return inner


def _root(expression: Expression) -> Expression | None:
    match expression:
        case Call("sqrt", (inner,)) | Call("pow", (inner, Literal(0.5))):
            return _uncast(inner)
        case Call("distance"):
            return expression
    return None


def _points(expression: Expression) -> Points | None:
    match expression:
        case Call("distance", args):
            return _parse_points(args)
        case Call("+", (a, b)):
            first, second = _points(_uncast(a)), _points(_uncast(b))
            if first is None or second is None:
                return None
            return (first[0] + second[0], first[1] + second[1])
        case Call("pow", (inner, Literal(2.0))):
            return _coordinate(_uncast(inner))
        case Call("*", (a, b)) if a == b:
            return _coordinate(_uncast(a))
    return None


def _parse_points(args: tuple[Expression, ...]) -> Points | None:
    half = len(args) // 2
    first, second = args[:half], args[half:]
    sides = tuple(frozenset(side for point in points for side in sides_of(point)) for points in (first, second))
    if sides == (LEFT, RIGHT):
        return first, second
    return (second, first) if sides == (RIGHT, LEFT) else None


def _coordinate(difference: Expression) -> Points | None:
    match difference:
        case Call("-", (a, b)):
            sides = (sides_of(a), sides_of(b))
            if sides == (LEFT, RIGHT):
                return (as_double(bare(a)),), (as_double(bare(b)),)
            if sides == (RIGHT, LEFT):
                return (as_double(bare(b)),), (as_double(bare(a)),)
    return None


def _alternatives(condition: Condition, binder: Binder) -> tuple[Condition, ...]:
    """Disjoint conditions that together are equivalent to `condition` without its filters.

    Empty if the conjunction itself has a kernel that is as good, or if some alternative would have none.
    """
    if condition.equalities:
        return ()
    ways = [(part, found) for part in condition.residual if (found := _disjuncts(part, binder))]
    # One disjunction is enough if all its alternatives have kernels; the others are then checked.
    choices = [([part], found) for part, found in ways]
    if len(ways) > 1 and (together := _product([found for _, found in ways])):
        choices.append(([part for part, _ in ways], together))
    best: list[Alternative] = []
    least: float = strength(condition)
    for parts, found in choices:
        shared = [conjunct for conjunct in condition.conjuncts if conjunct not in parts]
        made = [Alternative(own, (*own, *shared), _conjunction((*own, *shared), binder)) for own in found]
        if (weakest := min(one.use for one in made)) > least:
            best, least = made, weakest
    return tuple(_disjoint(best, binder))


class Alternative(NamedTuple):
    """A conjunction by itself, without regard to the others."""

    own: Conjunction  # the part that only this alternative has
    conjuncts: Conjunction
    condition: Condition

    @property
    def use(self) -> float:
        """Its strength as the driver of a join. If it only filters, every pair it lists is a result."""
        if not self.condition.conjuncts:
            return EQUALITY + 1
        found = strength(self.condition)
        return found + NARROWER if found and any(self.condition.filters) else found


def strength(condition: Condition) -> int:
    """Roughly, how selective the kernel of the conjunction is."""
    return EQUALITY if condition.equalities else STRENGTH.get(condition.strategy.kind, METRIC)


def _disjoint(found: list[Alternative], binder: Binder) -> Iterator[Condition]:
    """Disjoint conditions. Those with many candidates come first, since the first need not exclude others."""
    ordered = sorted(found, key=lambda one: strength(one.condition))
    for number, one in enumerate(ordered):
        earlier = [_not_true(other.own) for other in ordered[:number] if not _exclude_each_other(one.own, other.own)]
        condition = _conjunction((*one.conjuncts, *earlier), binder) if earlier else one.condition
        yield replace(condition, text=" AND ".join(map(_text, one.conjuncts)))


def _not_true(conjunction: Conjunction) -> Expression:
    """An expression: the conjunction is false or null."""
    known = Call("coalesce", (connect("and", conjunction, types.BOOLEAN), FALSE), types.BOOLEAN)
    return Call("not", (known,), types.BOOLEAN)


def _exclude_each_other(one: Conjunction, other: Conjunction) -> bool:
    """Whether no pair can satisfy both, as far as a null test or two constants show."""
    for first, second in product(one, other):
        match first, second:
            case (Call("is_null", (value,)), Call(function, args)) | (Call(function, args), Call("is_null", (value,))):
                if function in COMPARISONS - {"<=>"} and value in args:
                    return True
            case Call("=", (a, Literal(x))), Call("=", (b, Literal(y))):
                if a == b and not are_equal(x, y):
                    return True
    return False


def _disjuncts(conjunct: Expression, binder: Binder) -> list[Conjunction]:
    """The conjunct as a disjunction of conjunctions; empty if it is not one, or has too many alternatives."""
    found = _normal_form(conjunct, binder)
    return found if 1 < len(found) <= MOST else []


def _normal_form(expression: Expression, binder: Binder) -> list[Conjunction]:
    match expression:
        case Call("or", args):
            return list(dict.fromkeys(part for arg in args for part in _normal_form(arg, binder)))
        case Call("and", args):
            return _product([_normal_form(arg, binder) for arg in args]) or [(expression,)]
        case Call("in", (value, *items)) if len(sides_of(expression)) > 1:
            return [(binder.call("=", value, item),) for item in dict.fromkeys(items)]
        case Call("<=>", (left, right)) if sides_of(left) and sides_of(right):
            nulls = tuple(Call("is_null", (side,), types.BOOLEAN) for side in (left, right))
            return [(binder.call("=", left, right),), nulls]
    return [(expression,)]


def _product(factors: list[list[Conjunction]]) -> list[Conjunction]:
    """All ways to take one of each factor; empty if there are too many."""
    size = 1
    for factor in factors:
        size *= len(factor)
    if size > MOST:
        return []
    return [tuple(dict.fromkeys(part for conjunction in way for part in conjunction)) for way in product(*factors)]


def _text(part: Expression) -> str:
    text = text_of(part)
    return f"({text})" if isinstance(part, Call) and part.function == "or" else text
