"""A disjunction as alternatives, each of which can drive a join by itself.

    (l.a = r.a OR l.b = r.b) AND l.c < r.c       l.a = r.a AND l.c < r.c
                                                 l.b = r.b AND l.c < r.c, without what the first one finds
    l.a <=> r.a                                  l.a = r.a; both are null
    l.a IN (r.a, r.b)                            l.a = r.a; l.a = r.b, without what the first one finds

No pair satisfies two alternatives: a later one excludes pairs for which an earlier one is true. False and null exclude
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from dovetail.condition import types
from dovetail.condition.bind import Binder
from dovetail.condition.expression import COMPARISONS, Call, Expression, Literal, connect, sides_of
from dovetail.condition.linear import FALSE
from dovetail.condition.predicates import Condition
from dovetail.condition.render import text_of

MOST = 8  # alternatives: every one is a join of its own

Conjunction = tuple[Expression, ...]
Normalise = Callable[[Sequence[Expression]], Condition]

STRENGTH = {"none": 0, "unequal": 1, "one_inequality": 2, "two_inequalities": 3, "overlap": 3}
METRIC, EQUALITY = 4, 5
NARROWER = 0.5  # the same kernel on fewer rows


def alternatives(condition: Condition, binder: Binder, normalise: Normalise) -> tuple[Condition, ...]:
    """Disjoint conditions that together mean the same as `condition` without its filters.

    None where its conjunction has a kernel that is as good, or where some alternative would have none.
    """
    if condition.equalities:
        return ()
    ways = [(part, found) for part in condition.residual if (found := _disjuncts(part, binder))]
    # One disjunction is enough, where every alternative of it has a kernel: the others are checked.
    choices = [([part], found) for part, found in ways]
    if len(ways) > 1 and (together := _product([found for _, found in ways])):
        choices.append(([part for part, _ in ways], together))
    best: list[Alternative] = []
    least: float = strength(condition)
    for parts, found in choices:
        shared = [conjunct for conjunct in condition.conjuncts if conjunct not in parts]
        made = [Alternative(own, (*own, *shared), normalise((*own, *shared))) for own in found]
        if (weakest := min(one.use for one in made)) > least:
            best, least = made, weakest
    return tuple(_disjoint(best, normalise))


class Alternative(NamedTuple):
    """A conjunction by itself, whatever others find."""

    own: Conjunction  # what tells it from the others
    conjuncts: Conjunction
    condition: Condition

    @property
    def use(self) -> float:
        """Its strength as the driver of a join. One that only filters lists no pair in vain."""
        if not self.condition.conjuncts:
            return EQUALITY + 1
        found = strength(self.condition)
        return found + NARROWER if found and any(self.condition.filters) else found


def strength(condition: Condition) -> int:
    """How few candidates the kernel of a conjunction leaves, roughly."""
    return EQUALITY if condition.equalities else STRENGTH.get(condition.strategy.kind, METRIC)


def _disjoint(found: list[Alternative], normalise: Normalise) -> Iterator[Condition]:
    """Conditions of which no pair satisfies two. Those with many candidates come first: they need not be checked."""
    ordered = sorted(found, key=lambda one: strength(one.condition))
    for number, one in enumerate(ordered):
        earlier = [_not_true(other.own) for other in ordered[:number] if not _exclude_each_other(one.own, other.own)]
        condition = normalise((*one.conjuncts, *earlier)) if earlier else one.condition
        yield replace(condition, text=" AND ".join(map(_text, one.conjuncts)))


def _not_true(conjunction: Conjunction) -> Expression:
    """Whether the conjunction is false or null."""
    known = Call("coalesce", (connect("and", conjunction, types.BOOLEAN), FALSE), types.BOOLEAN)
    return Call("not", (known,), types.BOOLEAN)


def _exclude_each_other(one: Conjunction, other: Conjunction) -> bool:
    """Whether no pair can satisfy both, as can be told from a null or from two constants."""
    for first, second in product(one, other):
        match first, second:
            case (Call("is_null", (value,)), Call(function, args)) | (Call(function, args), Call("is_null", (value,))):
                if function in COMPARISONS - {"<=>"} and value in args:
                    return True
            case Call("=", (a, Literal(x))), Call("=", (b, Literal(y))):
                if a == b and x != y:
                    return True
    return False


def _disjuncts(conjunct: Expression, binder: Binder) -> list[Conjunction]:
    """The conjunct as a disjunction of conjunctions; empty if it is none, or has too many alternatives."""
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
    """All ways to take one of each; empty if there are too many."""
    size = 1
    for factor in factors:
        size *= len(factor)
    if size > MOST:
        return []
    return [tuple(dict.fromkeys(part for conjunction in way for part in conjunction)) for way in product(*factors)]


def _text(part: Expression) -> str:
    text = text_of(part)
    return f"({text})" if isinstance(part, Call) and part.function == "or" else text
