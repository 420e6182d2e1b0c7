"""The SQL text of the parts that PySpark Columns are made of, and the errors for those that have none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import DataType, StructType

from dovetail.condition import Literal, quoted, spark_sql
from dovetail.errors import ConditionError

BINARY = {"==": "=", "and": "AND", "or": "OR", "like": "LIKE", "ilike": "ILIKE", "rlike": "RLIKE"} | {
    name: name for name in ("=", "<", "<=", ">", ">=", "<=>", "+", "-", "*", "/", "%", "&", "|", "^")
}
CONNECTIVES = ("and", "or")
PREFIX = {"!": "NOT", "not": "NOT", "negative": "-", "~": "~"}
POSTFIX = {"isnull": "IS NULL", "isnotnull": "IS NOT NULL"}
TRIMS = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
UNIT_FIRST = ("timestampdiff", "timestampadd")  # in SQL their unit is a word, not a string
FUNCTION_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

INSTEAD = 'Pass the condition as SQL text with l and r instead, for example on="l.a < r.b".'
UNREADABLE = {
    "Window": "a window function",
    "WindowExpression": "a window function",
    "SortOrder": "a sort order",
    "SubqueryExpression": "a sub-query",
    "UnresolvedStar": "a star; name the columns",
    "UnresolvedRegex": "a regular expression for names; name the columns",
}
"""Kinds of node that have no place in a join condition."""


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL. `type` is known for columns and fields of structs only."""

    text: str
    type: DataType | None = None


def call(name: str, args: Sequence[Sql]) -> Sql:
    """A function or operator, as Spark names it inside a Column, applied to its arguments."""
    texts = [arg.text for arg in args]
    match name.lower(), texts:
        case function, [_, _, *_] if function in CONNECTIVES:
            return Sql(f"({f' {BINARY[function]} '.join(texts)})")
        case function, [first, second] if function in BINARY:
            return Sql(f"({first} {BINARY[function]} {second})")
        case function, [only] if function in PREFIX:
            return Sql(f"({PREFIX[function]} {only})")
        case function, [only] if function in POSTFIX:
            return Sql(f"({only} {POSTFIX[function]})")
        case "in", [_]:
            return Sql("FALSE")  # no values to be among
        case "in", [subject, *values]:
            return Sql(f"({subject} IN ({', '.join(values)}))")
        case "like" | "ilike" as function, [subject, pattern, escape]:
            return Sql(f"({subject} {function.upper()} {pattern} ESCAPE {escape})")
        case "trim" | "ltrim" | "rtrim" as function, [what, subject]:
            return Sql(f"TRIM({TRIMS[function]} {what} FROM {subject})")
        case "extract", [part, subject]:
            return Sql(f"date_part({part}, {subject})")
        case function, [unit, *others] if function in UNIT_FIRST:
            return Sql(f"{function}({', '.join([unit.strip(chr(39)), *others])})")
    if not FUNCTION_NAME.fullmatch(name):
        raise unreadable(f"the function {name}")
    return Sql(f"{name}({', '.join(texts)})")


def chain(node: Any, args_of: Callable[[Any], list[Any] | None]) -> list[Any]:
    """The operands of a chain of ANDs, or of ORs, without recursion: people make long ones in loops.

    `args_of` gives the arguments of a node of that kind, and None for all others.
    """
    operands: list[Any] = []
    waiting = [node]
    while waiting:
        part = waiting.pop()
        args = args_of(part)
        if args is None:
            operands.append(part)
        else:
            waiting += reversed(args)
    return operands


def case(branches: Sequence[tuple[Sql, Sql]], otherwise: Sql | None) -> Sql:
    whens = " ".join(f"WHEN {when.text} THEN {then.text}" for when, then in branches)
    default = f" ELSE {otherwise.text}" if otherwise else ""
    return Sql(f"CASE {whens}{default} END")


def cast(value: Sql, type_name: str, is_try: bool) -> Sql:
    return Sql(f"{'TRY_CAST' if is_try else 'CAST'}({value.text} AS {type_name})")


def extract(value: Sql, key: Sql, name: str | None) -> Sql:
    """An element of an array or a map, or the field `name` of a struct (if the key is a constant text)."""
    if name is not None and isinstance(value.type, StructType):
        return field(value, name)
    return Sql(f"{value.text}[{key.text}]")


def field(value: Sql, name: str) -> Sql:
    """A field of a struct; of a map, the value under that key."""
    if not isinstance(value.type, StructType):
        return Sql(f"{value.text}[{literal(name).text}]")
    types = {f.name.casefold(): f.dataType for f in value.type}
    return Sql(f"{value.text}.{quoted(name)}", types.get(name.casefold()))


def function_of(variables: Sequence[str], body: Sql) -> Sql:
    """A lambda: (x, y) -> x + y."""
    return Sql(f"({', '.join(quoted(v) for v in variables)}) -> {body.text}")


def literal(value: Any) -> Sql:
    """A constant, given as the Python value that it stands for."""
    return Sql(spark_sql(Literal(value)))


def months(count: int) -> Sql:
    return Sql(f"INTERVAL '{count}' MONTH")


def unreadable(what: str) -> ConditionError:
    return ConditionError(f"{what} cannot be read from a Column. {INSTEAD}")


def unknown_node(kind: str) -> ConditionError:
    """For a node that has no SQL text: one with no place in a condition, or one that this version does not know."""
    if kind in UNREADABLE:
        return ConditionError(f"a join condition cannot contain {UNREADABLE[kind]}.")
    return unreadable(f"this part of the condition ({kind})")


def python_function(name: str) -> ConditionError:
    return ConditionError(
        f"{name} is a Python function (UDF): it cannot be part of a condition given as a Column. "
        f"Compute it first, for example left.withColumn('key', {name}(…)), and join on that column; "
        f"or name it with spark.udf.register and pass the condition as SQL text with l and r."
    )
