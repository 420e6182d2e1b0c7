"""Scalar expressions over the columns of two inputs.

The tree is small on purpose: a function that is not in the table of `functions.py` is *opaque*. It keeps its text, so
that Spark can still evaluate it, but no kernel and no in-process evaluation can.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dovetail.core.rows import Side

COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">=", "<=>"})
SIMPLE = COMPARISONS | {"and", "or", "not", "in", "is_null", "like"}
"""Operators that never fail, and that mean the same under all settings of Spark."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one side. `type` is None until the condition is bound to the two schemas."""

    side: Side
    name: str
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant. Two are equal only if they are indistinguishable: NaN equals itself, and 0.0 is not -0.0.

    Python's rules differ: there, NaN never equals NaN. Use `are_equal` for SQL's equality.
    """

    value: Any
    type: pa.DataType | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Any, ...]:
        value = self.value
        return value.hex() if isinstance(value, float) else value, self.type


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator applied to expressions. These have arguments that are not obvious from SQL text:

    case       condition, value, condition, value, …, default
    cast       a value; `type` is the target type, known from the start
    field      a struct and the name of a field
    overlaps   the start and end of one interval, then those of another
    distance   the coordinates of the left point, then those of the right one, or one array column of each
    sort_key   a struct or a list, which becomes bytes
    place      a value, and the constants among which its place is found
    """

    function: str
    args: tuple[Expression, ...]
    type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Opaque:
    """An expression that only Spark can evaluate: Spark SQL text over l.… and r.…, and the columns it reads."""

    sql: str
    columns: tuple[Column, ...]
    type: pa.DataType | None = None


Expression = Column | Literal | Call | Opaque


def are_equal(one: Any, other: Any) -> bool:
    """Whether two constants of one type are equal in SQL, where NaN equals NaN."""
    return bool(one == other or (one != one and other != other))


def type_of(expression: Expression) -> pa.DataType:
    """The expression's type; null if only Spark knows it."""
    return pa.null() if expression.type is None else expression.type


def connect(function: str, parts: Sequence[Expression], type_: pa.DataType | None = None) -> Expression:
    """All parts, connected by AND or OR in a single call, so that a long chain is not a deep tree."""
    return parts[0] if len(parts) == 1 else Call(function, tuple(parts), type_)


def columns_of(expression: Expression) -> tuple[Column, ...]:
    """Every column the expression reads, with repetitions."""
    match expression:
        case Column():
            return (expression,)
        case Call(_, args):
            return tuple(column for arg in args for column in columns_of(arg))
        case Opaque(_, columns):
            return columns
    return ()


def sides_of(expression: Expression) -> frozenset[Side]:
    return frozenset(column.side for column in columns_of(expression))


def is_opaque(expression: Expression) -> bool:
    """Whether only Spark can evaluate some part of it."""
    match expression:
        case Opaque():
            return True
        case Call(_, args):
            return any(is_opaque(arg) for arg in args)
    return False


def quote_name(name: str) -> str:
    """A name quoted for Spark SQL, with any characters."""
    return "`" + name.replace("`", "``") + "`"


def quoted_if_needed(name: str) -> str:
    """The name, with quotes only if it needs them."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else quote_name(name)
