"""Rewrites comparisons so that each side reads only one input.

`l.x - r.y < 5` becomes `l.x < r.y + 5` wherever sums are exact: integers, decimals that keep all their digits, dates,
timestamps and durations. (64-bit overflow is an error in either form.) Floating-point sums round, so those comparisons
are left as written.
"""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.condition import types
from dovetail.condition.bind import Binder
from dovetail.condition.casts import PER_SECOND
from dovetail.condition.expression import Call, Expression, Literal, connect, sides_of, type_of
from dovetail.core.rows import Side
from dovetail.errors import ConditionError

OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
TRUE = Literal(True, types.BOOLEAN)
FALSE = Literal(False, types.BOOLEAN)


def conjuncts(expression: Expression) -> list[Expression]:
    """The conjuncts of a condition. Empty: always true. [FALSE]: never true, but false or null."""
    found = list(dict.fromkeys(_split(_positive(expression))))
    if any(isinstance(c, Literal) and c.value is not True for c in found):
        return [FALSE]
    return [c for c in found if c != TRUE]


def _positive(expression: Expression, negate: bool = False) -> Expression:
    """The expression with NOT pushed inwards until it disappears, or reaches something that has no opposite."""
    match expression:
        case Call("not", (inner,)):
            return _positive(inner, not negate)
        case Call("and" | "or" as function, args):
            if negate:
                function = "or" if function == "and" else "and"
            return Call(function, tuple(_positive(arg, negate) for arg in args), types.BOOLEAN)
        case Call(function, args) if negate and function in OPPOSITE:
            return Call(OPPOSITE[function], args, types.BOOLEAN)
        case Literal(bool(value)) if negate:
            return Literal(not value, types.BOOLEAN)
    return Call("not", (expression,), types.BOOLEAN) if negate and not isinstance(expression, Literal) else expression


def _split(expression: Expression) -> list[Expression]:
    match expression:
        case Call("and", args):
            return [part for arg in args for part in _split(arg)]
        case Call("or", args):
            return _factor_out([branch for arg in args for branch in _branches(arg)])
    return [expression]


def _branches(expression: Expression) -> list[Expression]:
    match expression:
        case Call("or", args):
            return [branch for arg in args for branch in _branches(arg)]
    return [expression]


def _factor_out(branches: list[Expression]) -> list[Expression]:
    """(a AND b) OR (a AND c) as a AND (b OR c): a conjunct that all branches share can drive the join."""
    parts = [conjuncts(branch) for branch in branches]
    parts = [p for p in parts if p != [FALSE]]
    if not parts:
        return [FALSE]
    shared = [c for c in parts[0] if all(c in p for p in parts)]
    rest = [[c for c in p if c not in shared] for p in parts]
    if not all(rest):
        return shared
    return [*shared, connect("or", [connect("and", r, types.BOOLEAN) for r in rest], types.BOOLEAN)]


t = pa.types

FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
DAY = timedelta(days=1)
LEFT, RIGHT = frozenset({Side.LEFT}), frozenset({Side.RIGHT})
EXACT_BIGINT = 2**62
EXACT_DOUBLE = 2**53  # integers up to this are exact as doubles, and casting larger ones keeps their order


class Term(NamedTuple):
    sign: int
    value: Expression


def flip(comparison: Call) -> Call:
    left, right = comparison.args
    return Call(FLIPPED[comparison.function], (right, left), types.BOOLEAN)


def separate_sides(comparison: Call, binder: Binder) -> Call | None:
    """An equivalent comparison of a left with a right expression; None if there is none."""
    left, right = (sides_of(arg) for arg in comparison.args)
    if (left, right) == (LEFT, RIGHT):
        return comparison
    if (left, right) == (RIGHT, LEFT):
        return flip(comparison)
    a, b = comparison.args
    if a.type is None or b.type is None or not types.is_exact(a.type):
        return None
    if residues := _same_residues(comparison, binder):
        return residues
    first, second = _terms(a, 1), _terms(b, -1)
    if first is None or second is None:
        return None
    return _rebuilt(comparison.function, first + second, binder)


def _same_residues(comparison: Call, binder: Binder) -> Call | None:
    """(l.x + r.y) % 5 = 0 as (l.x % 5 + 5) % 5 = (5 - r.y % 5) % 5: both sides are from 0 to 4, for any signs.

    Only for comparison with 0, because a remainder has the sign of the sum.
    """
    match comparison:
        case Call("=" | "!=", (Call("%", (total, Literal(int(modulus)))), Literal(0))):
            terms = _terms(total, 1) if t.is_signed_integer(type_of(total)) else None
        case _:
            return None
    if terms is None or not 0 < abs(modulus) < EXACT_BIGINT:
        return None
    number = Literal(abs(modulus), types.INT64)
    left = [term for term in terms if sides_of(term.value) == LEFT]
    right = [term for term in terms if sides_of(term.value) != LEFT]
    if all(term.sign < 0 for term in left):
        left, right = ([Term(-sign, value) for sign, value in part] for part in (left, right))

    def remainder(part: list[Term]) -> Expression:
        return binder.call("%", _sum(part, binder), number)

    if all(term.sign < 0 for term in right):  # right is then not negated
        other = binder.call("+", remainder([Term(1, value) for _, value in right]), number)
    else:
        other = binder.call("-", number, remainder(right))
    first = binder.call("%", binder.call("+", remainder(left), number), number)
    found = binder.call(comparison.function, first, binder.call("%", other, number))
    assert isinstance(found, Call)
    return found


def _terms(expression: Expression, sign: int) -> list[Term] | None:
    """A sum as terms that each read one side; None if it is not a sum, or not exact."""
    if _is_exact_sum(expression):
        match expression:
            case Call("neg", (inner,)):
                return _terms(inner, -sign)
            case Call("cast", (inner,), target) if inner.type and target and types.is_lossless(inner.type, target):
                return _terms(inner, sign)
            case Call("+" | "-" as function, (a, b)):
                first, second = _terms(a, sign), _terms(b, sign if function == "+" else -sign)
                return None if first is None or second is None else first + second
    return [Term(sign, expression)] if len(sides_of(expression)) < 2 else None


def _is_exact_sum(expression: Expression) -> bool:
    type_ = expression.type
    if type_ is None or not types.is_exact(type_):
        return False
    if t.is_decimal(type_):
        return bool(type_.precision < types.MOST_DIGITS)  # at the limit, Spark may have rounded
    if t.is_date(type_) and isinstance(expression, Call):
        return not any(t.is_integer(type_of(arg)) for arg in expression.args)  # days as a number cannot be a term
    return True


def _rebuilt(operator: str, terms: list[Term], binder: Binder) -> Call | None:
    left = [term for term in terms if sides_of(term.value) == LEFT]
    others = [Term(-term.sign, term.value) for term in terms if sides_of(term.value) != LEFT]
    constants = [term for term in others if isinstance(term.value, Literal)]
    right = [term for term in others if term not in constants]
    if _points(left) < 0 or all(term.sign < 0 for term in left):
        operator = FLIPPED[operator]
        left, right, constants = ([Term(-sign, value) for sign, value in part] for part in (left, right, constants))
    try:
        total = _sum([*right, *_combine_constants(constants, binder)], binder)
        comparison = binder.call(operator, _sum(left, binder), total)
    except ConditionError:
        return None  # not a sum that has a type, for example instant + instant
    assert isinstance(comparison, Call)
    return comparison if all(_is_kept(arg) for arg in comparison.args) else None


def _is_point(term: Term) -> bool:
    return types.is_instant(type_of(term.value))


def _points(terms: list[Term]) -> int:
    """The number of instants minus that of subtracted ones: a sum with 0 is a length of time, with 1 an instant."""
    return sum(term.sign for term in terms if _is_point(term))


def _combine_constants(constants: list[Term], binder: Binder) -> list[Term]:
    """At most one constant besides instants, with its own sign."""
    points = [term for term in constants if _is_point(term)]
    amounts = [term for term in constants if not _is_point(term)]
    if not amounts:
        return points
    total = _sum(amounts, binder)
    assert isinstance(total, Literal)
    if not total.value:
        return points
    negated = binder.call("neg", total)
    assert isinstance(negated, Literal)
    return [*points, Term(1, total) if total.value > negated.value else Term(-1, negated)]


def _sum(terms: list[Term], binder: Binder) -> Expression:
    # Instants first, and added terms before subtracted ones, so that intermediate results are lengths of time.
    ordered = sorted(terms, key=lambda term: (not _is_point(term), -term.sign))
    (first, *others) = ordered
    total = first.value if first.sign > 0 else binder.call("neg", first.value)
    for sign, value in others:
        total = binder.call("+" if sign > 0 else "-", total, value)
    return total


def _is_kept(expression: Expression) -> bool:
    """Whether the moved sums are still exact."""
    match expression:
        case Call("+" | "-", args):
            return _is_exact_sum(expression) and all(_is_kept(arg) for arg in args)
        case Call("cast", (inner,)):
            return _is_kept(inner)
        case Literal():
            return leaves_room(expression)
    return True


def leaves_room(constant: Literal) -> bool:
    """Whether a constant can be added to the other operand: l.i - r.i < 2**63 - 1 must not overflow."""
    match constant.value:
        case int(value):
            return -EXACT_BIGINT < value < EXACT_BIGINT
        case timedelta() as span if t.is_duration(type_of(constant)):
            return abs(span // timedelta(microseconds=1)) < EXACT_BIGINT * 10**6 // PER_SECOND[type_of(constant).unit]
    return True


def simplify_comparison(comparison: Call, binder: Binder) -> Expression:
    """Integers, dates and float32 against a constant between two values: i < 5.5 is i <= 5, i = 5.5 is never."""
    if comparison.function not in FLIPPED:
        return comparison
    if isinstance(comparison.args[0], Literal):
        comparison = flip(comparison)
    function, (value, bound) = comparison.function, comparison.args
    match value, bound:
        case Call("cast", (inner,), target), Literal(float() | Decimal() as number) if _counts(inner, target, number):
            if number != math.floor(number) and function in ("=", "!="):
                return _never_equal(function, inner)
            function, whole = inwards(function, number, 1)
            return binder.call(function, inner, Literal(whole, types.INT64))
        case Call("cast", (inner,)), Literal(float(number)) if function in ("=", "!=") and _is_no_single(inner, number):
            return _never_equal(function, inner)
        case Call("-", (a, _)), Literal(timedelta() as span) if t.is_date(type_of(a)):
            if span % DAY and function in ("=", "!="):
                return _never_equal(function, value)
            function, days = inwards(function, span, DAY)
            return binder.call(function, value, Literal(days, types.DAY))
        case _:
            value, bound = in_days(value, bound, binder)
            return Call(function, (value, bound), types.BOOLEAN)


def _counts(value: Expression, target: pa.DataType | None, bound: float | Decimal) -> bool:
    """Whether comparing an integer cast to `target` with this bound equals comparing the integer itself."""
    source = type_of(value)
    if not t.is_integer(source) or t.is_uint64(source) or target is None:
        return False
    if t.is_decimal(target):
        return types.is_lossless(source, target) and -EXACT_BIGINT < bound < EXACT_BIGINT
    return bool(target == types.DOUBLE and -EXACT_DOUBLE < bound < EXACT_DOUBLE)


def _is_no_single(value: Expression, number: float) -> bool:
    """Whether the value is a float32 and the number is not: 0.1 as a double, or a number out of range."""
    if not t.is_float32(type_of(value)) or math.isnan(number):
        return False
    with np.errstate(over="ignore"):
        return float(np.float32(number)) != number


def _never_equal(function: str, value: Expression) -> Expression:
    """Never equal: = is false and != is true, except for null."""
    return FALSE if function == "=" else Call("not", (Call("is_null", (value,), types.BOOLEAN),), types.BOOLEAN)


def inwards(function: str, bound: Any, step: int | timedelta) -> tuple[str, Any]:
    """A bound between two steps, moved to the nearest step that can still be reached."""
    below = bound // step * step if isinstance(step, timedelta) else math.floor(bound)
    if below == bound:
        return function, below
    return ("<=", below) if function in ("<", "<=") else (">=", below + step)


def in_days(difference: Expression, bound: Expression, binder: Binder) -> tuple[Expression, Expression]:
    """datediff(x, y) compared with a number of days, as x - y compared with a length of time."""
    match difference, bound:
        case Call("datediff", (a, b)), Literal(int(days)):
            return binder.call("-", a, b), Literal(timedelta(days=days), types.DAY)
    return difference, bound
