"""Renders expressions as text: Spark SQL for Spark to evaluate, and a short form for users."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dovetail.condition import types
from dovetail.condition.casts import PER_SECOND
from dovetail.condition.expression import COMPARISONS, Call, Column, Expression, Literal, Opaque, quote_name, type_of
from dovetail.condition.literals import natural_type
from dovetail.condition.predicates import (
    Band,
    Condition,
    Distance,
    Equal,
    Less,
    NotEqual,
    Overlap,
    Predicate,
    Rectangles,
)
from dovetail.condition.sql import with_columns

ColumnName = Callable[[Column], str]

t = pa.types

# Operator precedence; functions and names bind tightest.
LOOSEST, OR, AND, NOT, COMPARISON, SUM, PRODUCT, NEGATION, TIGHTEST = range(9)
LEVELS = {
    **dict.fromkeys(COMPARISONS, COMPARISON),
    **dict.fromkeys(("in", "like", "is_null"), COMPARISON),
    **dict.fromkeys(("+", "-"), SUM),
    **dict.fromkeys(("*", "/", "div", "%"), PRODUCT),
    **dict.fromkeys(("and", "overlaps"), AND),
    "or": OR,
    "not": NOT,
    "neg": NEGATION,
}
UNIT_NAMES = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))
WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


def qualify(column: Column) -> str:
    """The default column spelling: l.`name` or r.`name`."""
    return f"{column.side.alias}.{quote_name(column.name)}"


def spark_sql(expression: Expression, column: ColumnName = qualify) -> str:
    """Spark SQL. `column` returns the name of a column in the context where the text is used."""
    return _Spark(column).render(expression)


def text_of(expression: Expression) -> str:
    """A short form for users: casts that change no value are left out."""
    return _Human(_short).render(expression)


def _short(column: Column) -> str:
    return f"{column.side.alias}.{_readable(column.name)}"


def _readable(name: str) -> str:
    return name if WORD.fullmatch(name) else quote_name(name)


class _Spark:
    def __init__(self, column: ColumnName) -> None:
        self.column = column

    def render(self, expression: Expression, outer: int = LOOSEST) -> str:
        match expression:
            case Column():
                return self.column(expression)
            case Literal():
                constant = self.literal(expression)
                return f"({constant})" if constant.startswith("-") and outer >= NEGATION else constant  # "--" comments
            case Opaque():
                return self.opaque(expression)
            case Call("sort_key", (nested,)):  # Spark compares structs and lists directly, by the same rules
                return self.render(nested, outer)
            case Call():
                result, level = self.call(expression), self.level(expression)
                return f"({result})" if level < outer else result

    def level(self, call: Call) -> int:
        if call.function == "+" and t.is_date(type_of(call)) and not _has_duration(call):
            return TIGHTEST
        if call.function == "add_months":
            return SUM
        if call.function == "not" and isinstance(call.args[0], Call) and call.args[0].function in TESTS:
            return COMPARISON
        return LEVELS.get(call.function, TIGHTEST)

    def call(self, call: Call) -> str:
        function, args = call.function, call.args
        level = LEVELS.get(function, TIGHTEST)
        match function:
            case "+" | "-" if t.is_date(type_of(call)) and not _has_duration(call):
                name = "DATE_ADD" if function == "+" else "DATE_SUB"
                return f"{name}({self.render(args[0])}, CAST({self.render(args[1])} AS INT))"
            case "and" | "or":
                return f" {function.upper()} ".join(self.render(arg, level) for arg in args)
            case "+" | "-" | "*" | "/" | "div" | "%":
                return f"{self.render(args[0], level)} {function.upper()} {self.render(args[1], level + 1)}"
            case _ if function in COMPARISONS:
                return f"{self.render(args[0], level + 1)} {function} {self.render(args[1], level + 1)}"
            case "not":
                return self._not(args[0])
            case "neg":
                return f"-{self.render(args[0], TIGHTEST)}"
            case "is_null" | "like" | "in":
                return self._test(call)
            case "case":
                return self._case(args)
            case "cast":
                return f"CAST({self.render(args[0])} AS {types.spark_name(type_of(call))})"
            case "place":
                return self.render(args[0], TIGHTEST)
            case "field":
                return f"{self.render(args[0], TIGHTEST)}.{self.name(_constant(args[1]))}"
            case "add_months":
                return f"{self.render(args[0], SUM)} + INTERVAL '{_constant(args[1])}' MONTH"
            case "overlaps":
                start, end, other_start, other_end = (self.render(arg, COMPARISON + 1) for arg in args)
                return f"{start} < {other_end} AND {end} > {other_start}"
            case "distance":
                return self.distance(args)
        return f"{function.upper()}({self.render_list(args)})"

    def name(self, name: str) -> str:
        return quote_name(name)

    def render_list(self, args: tuple[Expression, ...]) -> str:
        return ", ".join(self.render(arg) for arg in args)

    def _not(self, arg: Expression) -> str:
        if isinstance(arg, Call) and arg.function in TESTS:
            return self._test(arg, "NOT ")
        return f"NOT {self.render(arg, NOT)}"

    def _test(self, call: Call, negation: str = "") -> str:
        subject, *others = (self.render(arg, COMPARISON + 1) for arg in call.args)
        match call.function:
            case "is_null":
                return f"{subject} IS {negation}NULL"
            case "like":
                return f"{subject} {negation}LIKE {others[0]}"
            case _:
                return f"{subject} {negation}IN ({', '.join(others)})"

    def _case(self, args: tuple[Expression, ...]) -> str:
        whens = zip(args[:-1:2], args[1:-1:2], strict=True)
        branches = " ".join(f"WHEN {self.render(when)} THEN {self.render(then)}" for when, then in whens)
        return f"CASE {branches} ELSE {self.render(args[-1])} END"

    def distance(self, args: tuple[Expression, ...]) -> str:
        half = len(args) // 2
        if half == 1 and types.is_list(type_of(args[0])):
            points = f"{self.render(args[0])}, {self.render(args[1])}"
            return f"SQRT(AGGREGATE(ZIP_WITH({points}, (p, q) -> POWER(p - q, 2)), 0D, (total, x) -> total + x))"
        squares = (
            f"POWER({self.render(a, SUM)} - {self.render(b, PRODUCT)}, 2)"
            for a, b in zip(args[:half], args[half:], strict=True)
        )
        return f"SQRT({' + '.join(squares)})"

    def opaque(self, expression: Opaque) -> str:
        return with_columns(expression, self.column)

    def literal(self, literal: Literal) -> str:
        value = literal.value
        type_ = natural_type(value) if literal.type is None else literal.type
        if value is None:
            return "NULL" if t.is_null(type_) else f"CAST(NULL AS {types.spark_name(type_)})"
        if t.is_boolean(type_):
            return "TRUE" if value else "FALSE"
        if t.is_integer(type_) and types.spark_name(type_) in INTEGER_SUFFIXES:
            return f"{value}{INTEGER_SUFFIXES[types.spark_name(type_)]}"
        if types.is_text(type_):
            escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        if types.is_bytes(type_):
            return f"X'{value.hex().upper()}'"
        if t.is_date(type_):
            return f"DATE '{value}'"
        if t.is_timestamp(type_):
            return _timestamp(value, type_)
        if t.is_duration(type_):
            return _duration(_micros(value, type_))
        if t.is_time(type_):
            return f"TIME '{value}'"
        return f"CAST('{_number(value)}' AS {types.spark_name(type_)})"


class _Human(_Spark):
    def render(self, expression: Expression, outer: int = LOOSEST) -> str:
        match expression:
            case Call("cast", (inner,), target) if _is_silent(inner, target):
                return self.render(inner, outer)
        return super().render(expression, outer)

    def call(self, call: Call) -> str:
        result = super().call(call)
        return result if call.function in PLAIN else f"{call.function}({self.render_list(call.args)})"

    def name(self, name: str) -> str:
        return _readable(name)

    def opaque(self, expression: Opaque) -> str:
        return expression.sql

    def literal(self, literal: Literal) -> str:
        value = literal.value
        type_ = natural_type(value) if literal.type is None else literal.type
        if value is None:
            return "NULL"
        if t.is_duration(type_):
            return _human_duration(_micros(value, type_))
        if types.is_number(type_):
            return _number(value)
        return super().literal(literal)


TESTS = frozenset({"is_null", "like", "in"})
PLAIN = frozenset({*LEVELS, "case", "cast", "field", "place", "add_months"})
INTEGER_SUFFIXES = {"TINYINT": "Y", "SMALLINT": "S", "INT": "", "BIGINT": "L"}


def _is_silent(inner: Expression, target: pa.DataType | None) -> bool:
    """Whether the cast can be hidden from users."""
    if inner.type is None or target is None:
        return False
    return _keeps_sense(inner.type, target)


def _keeps_sense(source: pa.DataType, target: pa.DataType) -> bool:
    pairs = types.paired_parts(source, target)
    if pairs is not None:
        return all(_keeps_sense(*pair) for pair in pairs)
    return (
        types.is_lossless(source, target)
        or types.plain(source) == types.plain(target)
        or (types.is_text(source) and types.is_text(target))
        or (target == types.DOUBLE and types.is_number(source))
        or (t.is_timestamp(source) and t.is_timestamp(target) and bool(source.tz) == bool(target.tz))
    )


def _has_duration(call: Call) -> bool:
    return any(t.is_duration(type_of(arg)) for arg in call.args)


def _constant(expression: Expression) -> Any:
    assert isinstance(expression, Literal)
    return expression.value


def _number(value: int | float | Decimal) -> str:
    if isinstance(value, float):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value))
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _micros(value: timedelta | int, type_: pa.DataType) -> int:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return value * 10**6 // PER_SECOND[type_.unit]


def _timestamp(value: datetime | int, type_: pa.DataType) -> str:
    if isinstance(value, int):
        value = datetime(1970, 1, 1, tzinfo=UTC if type_.tz else None) + timedelta(microseconds=value // 1000)
    if type_.tz:
        return f"TIMESTAMP '{value.astimezone(UTC).isoformat(sep=' ')}'"
    return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"


def _duration(micros: int) -> str:
    days, rest = divmod(abs(micros), 86_400_000_000)
    sign = "-" if micros < 0 else ""
    if not rest:
        return f"INTERVAL '{sign}{days}' DAY"
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    return f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND"


def _human_duration(micros: int) -> str:
    for name, size in UNIT_NAMES:
        if micros and micros % size == 0:
            count = micros // size
            return f"{count} {name}" if abs(count) == 1 else f"{count} {name}s"
    return f"{micros / 1_000_000:g} seconds"


def describe(predicate: Predicate) -> str:
    """One line for `explain`."""
    match predicate:
        case Equal(left, right):
            return f"{text_of(left)} = {text_of(right)}"
        case NotEqual(left, right):
            return f"{text_of(left)} != {text_of(right)}"
        case Less(left, operator, right):
            return f"{text_of(left)} {operator} {text_of(right)}"
        case Band(left, right, low, high, low_closed, high_closed):
            signs = ("<=" if low_closed else "<", "<=" if high_closed else "<")
            difference = _Human(_short).render(Call("-", (left, right)))
            return f"{text_of(low)} {signs[0]} {difference} {signs[1]} {text_of(high)}"
        case Overlap():
            return _overlap(predicate)
        case Rectangles(x, y):
            return f"{_overlap(x)} and {_overlap(y)}"
        case Distance(left, right, radius, closed):
            points = ", ".join(f"({', '.join(text_of(c) for c in point)})" for point in (left, right))
            return f"distance({points}) {'<=' if closed else '<'} {text_of(radius)}"


def conjunction(predicates: Iterable[Predicate]) -> str:
    """Several predicates, for `explain`."""
    return " AND ".join(map(describe, predicates))


def _overlap(overlap: Overlap) -> str:
    sides = (overlap.left, overlap.right)
    left, right = (f"[{text_of(side.low)}, {text_of(side.high)}]" for side in sides)
    return f"{left} overlaps {right}"


def condition_text(condition: Condition) -> str:
    """The whole condition as a conjunction, for users."""
    filters = (f for side in condition.filters for f in side)
    return " AND ".join(_Human(_short).render(c, AND) for c in (*condition.conjuncts, *filters)) or "TRUE"
