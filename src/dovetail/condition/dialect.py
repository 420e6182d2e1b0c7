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
