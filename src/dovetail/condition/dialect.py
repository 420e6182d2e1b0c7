"""Spark's SQL as conditions need it: a function that is not evaluated here is kept to the letter for Spark.

sqlglot knows hundreds of functions and rewrites them on their way through its tree, a few of them wrongly (to_char
loses its format, parse_json disappears). Only those that a condition understands or refuses are parsed as functions.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser

from dovetail.errors import ConditionError

UNDERSTOOD = frozenset(
    {
        *(
            "ABS",
            "SQRT",
            "POW",
            "POWER",
            "MOD",
            "FLOOR",
            "CEIL",
            "CEILING",
            "ROUND",
            "GREATEST",
            "LEAST",
            "ISNAN",
            "IS_NAN",
        ),
        *("LOWER", "LCASE", "UPPER", "UCASE", "LENGTH", "LEN", "CHAR_LENGTH", "CHARACTER_LENGTH", "CONCAT"),
        *("TRIM", "SUBSTRING", "SUBSTR", "COALESCE", "IFNULL", "NVL", "NULLIF", "IF", "CAST", "TRY_CAST", "EXTRACT"),
        *("YEAR", "MONTH", "DAY", "DAYOFMONTH", "DAY_OF_MONTH", "HOUR", "MINUTE", "SECOND", "DATE_TRUNC", "TRUNC"),
        *("DATE_ADD", "DATE_SUB", "ADD_MONTHS", "DATEDIFF", "DATE_DIFF"),
        # These take a keyword, which would be read as a column.
        *("TIMESTAMPDIFF", "TIMESTAMPADD", "TIMESTAMP_DIFF", "TIMESTAMP_ADD", "DATEADD"),
    }
)
REFUSED = frozenset(
    name
    for name, kind in exp.FUNCTION_BY_NAME.items()
    if issubclass(kind, (exp.AggFunc, exp.UDTF, exp.Explode, exp.Rand, exp.Randn, exp.Uuid))
)
PARSED = UNDERSTOOD | REFUSED


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
    """Raises ConditionError if some part of the tree cannot be part of a join condition."""
    for node in tree.walk():
        for kinds, what in KINDS:
            if isinstance(node, kinds):
                raise ConditionError(f"{_text(node)}: a join condition cannot contain {what}.")
        if isinstance(node, exp.Anonymous) and node.name.lower() in UNSTABLE:
            raise ConditionError(f"{_text(node)}: it is not deterministic; add it as a column first.")
    if not isinstance(tree, exp.Condition):
        raise ConditionError(f"this is not a condition: {_text(tree)}")


def _text(node: exp.Expr) -> str:
    return node.sql(dialect=DIALECT, normalize_functions="lower", comments=False)
