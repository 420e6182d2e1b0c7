"""A boolean expression as a list of conjuncts. All rewriting here holds in three-valued logic."""

from __future__ import annotations

from dovetail.condition import types
from dovetail.condition.expression import Call, Expression, Literal, joined

OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
TRUE = Literal(True, types.BOOLEAN)
FALSE = Literal(False, types.BOOLEAN)


def conjuncts(expression: Expression) -> list[Expression]:
    """What must all hold. Empty: always true. [FALSE]: never true (false, or never anything but null)."""
    found = list(dict.fromkeys(_split(_positive(expression))))
    if any(isinstance(c, Literal) and c.value is not True for c in found):
        return [FALSE]
    return [c for c in found if c != TRUE]


def _positive(expression: Expression, negate: bool = False) -> Expression:
    """NOT pushed inwards until it disappears or sits on something that has no opposite."""
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
            return _factored([branch for arg in args for branch in _branches(arg)])
    return [expression]


def _branches(expression: Expression) -> list[Expression]:
    match expression:
        case Call("or", args):
            return [branch for arg in args for branch in _branches(arg)]
    return [expression]


def _factored(branches: list[Expression]) -> list[Expression]:
    """(a AND b) OR (a AND c) is a AND (b OR c): what all branches ask for can drive the join."""
    parts = [conjuncts(branch) for branch in branches]
    parts = [p for p in parts if p != [FALSE]]
    if not parts:
        return [FALSE]
    shared = [c for c in parts[0] if all(c in p for p in parts)]
    rest = [[c for c in p if c not in shared] for p in parts]
    if not all(rest):
        return shared
    return [*shared, joined("or", [joined("and", r, types.BOOLEAN) for r in rest], types.BOOLEAN)]
