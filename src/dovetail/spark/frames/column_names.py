"""Resolves names in Columns to a side of the join and a column."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType
from sqlglot import exp

from dovetail.condition import Literal, quote_name, spark_sql
from dovetail.condition.sql import parse_text
from dovetail.core.rows import Side
from dovetail.errors import ConditionError

BINARY = {"==": "=", "and": "AND", "or": "OR", "like": "LIKE", "ilike": "ILIKE", "rlike": "RLIKE"} | {
    name: name for name in ("=", "<", "<=", ">", ">=", "<=>", "+", "-", "*", "/", "%", "&", "|", "^")
}
CONNECTIVES = ("and", "or")
PREFIX = {"!": "NOT", "not": "NOT", "negative": "-", "~": "~"}
POSTFIX = {"isnull": "IS NULL", "isnotnull": "IS NOT NULL"}
TRIMS = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
UNIT_FIRST = ("timestampdiff", "timestampadd")  # their unit is a keyword in SQL, not a string
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
"""Kinds of node that are not allowed in a join condition."""


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL. `type` is known only for columns and fields of structs."""

    text: str
    type: DataType | None = None


def call(name: str, args: Sequence[Sql]) -> Sql:
    """A function or operator, by Spark's name inside a Column, applied to its arguments."""
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
            return Sql("FALSE")  # an empty list of values
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
    """The operands of a chain of ANDs or of ORs, without recursion: chains built in loops can be long.

    `args_of` returns the arguments of a node of that kind, and None for other nodes.
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
    """An element of an array or a map, or the field `name` of a struct if the key is constant text."""
    if name is not None and isinstance(value.type, StructType):
        return field(value, name)
    return Sql(f"{value.text}[{key.text}]")


def field(value: Sql, name: str) -> Sql:
    """A field of a struct; for a map, the value of that key."""
    if not isinstance(value.type, StructType):
        return Sql(f"{value.text}[{literal(name).text}]")
    types = {f.name.casefold(): f.dataType for f in value.type}
    return Sql(f"{value.text}.{quote_name(name)}", types.get(name.casefold()))


def function_of(variables: Sequence[str], body: Sql) -> Sql:
    """A lambda: (x, y) -> x + y."""
    return Sql(f"({', '.join(quote_name(v) for v in variables)}) -> {body.text}")


def literal(value: Any) -> Sql:
    """A constant, from its Python value."""
    return Sql(spark_sql(Literal(value)))


def months(count: int) -> Sql:
    return Sql(f"INTERVAL '{count}' MONTH")


def unreadable(what: str) -> ConditionError:
    return ConditionError(f"{what} cannot be read from a Column. {INSTEAD}")


def unknown_node(kind: str) -> ConditionError:
    """The error for a node without SQL text: not allowed in a condition, or unknown to this version."""
    if kind in UNREADABLE:
        return ConditionError(f"a join condition cannot contain {UNREADABLE[kind]}.")
    return unreadable(f"this part of the condition ({kind})")


def python_function(name: str) -> ConditionError:
    return ConditionError(
        f"{name} is a Python function (UDF): it cannot be part of a condition given as a Column. "
        f"Compute it first, for example left.withColumn('key', {name}(…)), and join on that column; "
        f"or name it with spark.udf.register and pass the condition as SQL text with l and r."
    )


NESTED = (StructType, MapType, ArrayType)
NAME_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
OWN_ALIASES = {side.alias: side for side in Side}


def name_parts(name: str) -> list[str]:
    """The parts of a dotted name. Backticks quote a part that contains dots."""
    return [found[1].replace("``", "`") if found[1] is not None else found[2] for found in NAME_PART.finditer(name)]


class Names:
    """The columns of two DataFrames, by name."""

    def __init__(self, left: DataFrame, right: DataFrame) -> None:
        self.frames = (left, right)

    def column_of(self, side: Side, parts: Sequence[str]) -> Sql:
        """A column known to be on this side."""
        path = self._path(side, parts)
        if path is None:
            raise ConditionError(
                f"{'.'.join(parts)}: the {side.name.lower()} DataFrame has no such column. "
                f"It has: {', '.join(self.frames[side].columns)}."
            )
        return self._spell_column(side, path)

    def anywhere(self, parts: Sequence[str]) -> Sql:
        """A column given only by name, which may include the alias of a DataFrame (l and r are aliases as well)."""
        found = [(side, path) for side in Side if (path := self._path(side, parts)) is not None]
        if not found and len(parts) > 1 and parts[0].lower() in OWN_ALIASES:
            return self.column_of(OWN_ALIASES[parts[0].lower()], parts[1:])
        if len(found) == 1:
            return self._spell_column(*found[0])
        name = ".".join(parts)
        if found:
            raise ConditionError(
                f"{name} is on both sides. Take it from the DataFrame that is meant, as in left[{name!r}], "
                f"give the DataFrames aliases, or write l.{name} or r.{name} as SQL text."
            )
        if len(parts) > 1:
            raise ConditionError(
                f"{name}: neither DataFrame has the alias {parts[0]} or a column of that name. "
                f"Name a DataFrame with .alias({parts[0]!r}), or use l.{parts[-1]} or r.{parts[-1]} in SQL text."
            )
        raise ConditionError(
            f"{name}: no such column. The left DataFrame has: {', '.join(self.frames[0].columns)}. "
            f"The right DataFrame has: {', '.join(self.frames[1].columns)}."
        )

    def in_text(self, text: str) -> Sql:
        """SQL text as given to F.expr, with the side added to every column."""
        tree = parse_text(text)
        variables = {p.name for function in tree.find_all(exp.Lambda) for p in function.expressions}
        places = []
        for column in tree.find_all(exp.Column):
            if column.table or column.name not in variables:
                marks = [part.meta for part in column.parts]
                places.append((marks[0]["start"], marks[-1]["end"] + 1, [part.name for part in column.parts]))
        for start, end, parts in sorted(places, reverse=True):
            text = text[:start] + self.anywhere(parts).text + text[end:]
        # An interval has no parentheses, or Spark would not treat it as a constant to add.
        return Sql(text if isinstance(tree, exp.Interval) else f"({text})")

    def is_in(self, side: Side, column: SparkColumn) -> bool:
        """Whether Spark finds the column in this DataFrame."""
        try:
            return bool(self.frames[side].select(column).schema)
        except AnalysisException:
            return False

    def _path(self, side: Side, parts: Sequence[str]) -> tuple[StructField, Sequence[str]] | None:
        """The column that a dotted name refers to and the names of fields inside it, if it is on this side."""
        first = self._column(side, parts[0])
        if first is not None and (len(parts) == 1 or isinstance(first.dataType, NESTED)):
            return first, parts[1:]
        for at in range(1, len(parts)):  # the parts before may be an alias, or a table with its catalogue and schema
            column = self._column(side, parts[at])
            if column is not None and self.is_in(side, F.col(".".join(quote_name(part) for part in parts[: at + 1]))):
                return column, parts[at + 1 :]
        return None

    def _column(self, side: Side, name: str) -> StructField | None:
        fields = self.frames[side].schema.fields
        exact = [f for f in fields if f.name == name]
        return next(iter(exact or [f for f in fields if f.name.casefold() == name.casefold()]), None)

    def _spell_column(self, side: Side, path: tuple[StructField, Sequence[str]]) -> Sql:
        column, fields = path
        result = Sql(f"{side.alias}.{quote_name(column.name)}", column.dataType)
        for name in fields:
            result = field(result, name)
        return result


def ambiguous(name: str) -> ConditionError:
    return ConditionError(
        f"{name}: both sides come from the same DataFrame, so that the side is ambiguous. Give them aliases "
        f"(left.alias('x'), right.alias('y'), and F.col('x.{name}') in the condition), "
        f"or write l.{name} or r.{name} as SQL text."
    )


def foreign(name: str) -> ConditionError:
    return ConditionError(
        f"{name} belongs to neither of the two DataFrames: it was taken from another one, or the column has been "
        f"replaced since. Take it from the DataFrames that are joined, as in left[{name!r}]."
    )
