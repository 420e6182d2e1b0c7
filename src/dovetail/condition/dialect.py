"""Spark's SQL for conditions: a function that is not evaluated here is passed to Spark verbatim.

sqlglot knows hundreds of functions and rewrites them in its tree, a few of them wrongly (to_char loses its format,
parse_json disappears). Only functions with their own syntax, and those that are refused, are parsed by sqlglot.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser

from dovetail.errors import ConditionError

WITH_SYNTAX = frozenset(
    {
        *("MOD", "NULLIF", "IF", "CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR"),
        *("DATE_TRUNC", "TRUNC", "DATE_ADD", "DATE_SUB", "ADD_MONTHS", "DATEDIFF", "DATE_DIFF"),
        # These take a keyword, which would be parsed as a column.
        *("TIMESTAMPDIFF", "TIMESTAMPADD", "TIMESTAMP_DIFF", "TIMESTAMP_ADD", "DATEADD"),
    }
)
"""Functions that `translate.py` recognises by their sqlglot node. Calls of all others are a name and arguments."""
REFUSED = frozenset(
    name
    for name, kind in exp.FUNCTION_BY_NAME.items()
    if issubclass(kind, (exp.AggFunc, exp.UDTF, exp.Explode, exp.Rand, exp.Randn, exp.Uuid))
)
PARSED = WITH_SYNTAX | REFUSED


class ConditionDialect(Spark):
    class Parser(SparkParser):
        FUNCTIONS: ClassVar = {name: build for name, build in SparkParser.FUNCTIONS.items() if name in PARSED}
        FUNCTION_PARSERS: ClassVar = {
            name: parse for name, parse in SparkParser.FUNCTION_PARSERS.items() if name in PARSED | {"OVERLAY"}
        }

    class Generator(SparkGenerator):
        TYPE_MAPPING: ClassVar = {**SparkGenerator.TYPE_MAPPING, exp.DType.TIME: "TIME"}


DIALECT = ConditionDialect()


KINDS: tuple[tuple[tuple[type[exp.Expr], ...], str], ...] = (
    ((exp.Query, exp.Subquery), "a sub-query"),
    ((exp.Window,), "a window function"),
    ((exp.AggFunc,), "an aggregate function"),
    ((exp.UDTF, exp.Explode), "a table-valued function"),
    ((exp.Placeholder, exp.Parameter), "a parameter; put the value in the text"),
    ((exp.Star,), "a star; name the columns"),
    ((exp.Rand, exp.Randn, exp.Uuid), "a non-deterministic function"),
    ((exp.Alias, exp.Aliases), "an alias (is an operator missing?)"),
)
UNSTABLE = frozenset({"shuffle", "monotonically_increasing_id", "spark_partition_id", "input_file_name", "random"})


def refuse(tree: exp.Expr) -> None:
    """Raises ConditionError if any part of the tree is not allowed in a join condition."""
    for node in tree.walk():
        for kinds, what in KINDS:
            if isinstance(node, kinds):
                raise ConditionError(f"{spark_text(node)}: a join condition cannot contain {what}.")
        if isinstance(node, exp.Anonymous) and node.name.lower() in UNSTABLE:
            raise ConditionError(f"{spark_text(node)}: it is not deterministic; add it as a column first.")
    if not isinstance(tree, exp.Condition):
        raise ConditionError(f"this is not a condition: {spark_text(tree)}")


def spark_text(node: exp.Expr) -> str:
    """The tree as Spark SQL."""
    return node.sql(dialect=DIALECT, normalize_functions="lower", comments=False)


def refuse_symbols(node: exp.Expr) -> None:
    """Refuse & | ~ || as connectives of comparisons, as in other languages: here they are for numbers and text."""
    if (written := _in_words(node)) != (given := spark_text(node)):
        raise ConditionError(f"{given}: & | ~ and || are for numbers and texts. Write {written}.")


def _in_words(node: exp.Expr) -> str:
    """The text with AND, OR and NOT in place of symbols between comparisons."""
    if isinstance(node, exp.BitwiseNot) and _is_condition(node.this):
        return f"NOT {_in_words(node.this)}"
    if isinstance(node, exp.Paren):
        return f"({_in_words(node.this)})"
    if type(node) in WORDS and (_is_condition(node.this) or _is_condition(node.expression)):
        return f"{_in_words(node.this)} {WORDS[type(node)]} {_in_words(node.expression)}"
    first = node.this
    if isinstance(first, exp.Binary) and isinstance(first, exp.Predicate) and type(first.expression) in WORDS:
        # In l.a = r.a & l.b = r.b, & binds tighter than =.
        between = first.expression
        begin, end = first.copy(), node.copy()
        begin.set("expression", between.this.copy())
        end.set("this", between.expression.copy())
        if not isinstance(node.expression, exp.Boolean):
            return f"{_in_words(begin)} {WORDS[type(between)]} {_in_words(end)}"
    return spark_text(node)


def _is_condition(node: exp.Expr) -> bool:
    return isinstance(node.unnest(), exp.Predicate | exp.Connector | exp.Not | exp.BitwiseNot)


WORDS: dict[type[exp.Expr], str] = {exp.BitwiseAnd: "AND", exp.BitwiseOr: "OR", exp.DPipe: "OR"}
