"""`dovetail.sql(spark, query)`: finds the joins in the text of a query, for sessions whose planner is not accessible.

Parts of the query run as Spark queries over the DataFrames of the joins. If a part fails, the query is left to Spark,
with a warning; so is a query whose result would have other columns than Spark's.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from dovetail.errors import InputError
from dovetail.query.rewriting import bind_views, frame_text, rewrite
from dovetail.query.text import Unsupported, keeps_best, read_query
from dovetail.request import Request
from dovetail.spark.joins import best_dataframes, join_dataframes

LEVEL = 4  # stack level of the caller of dovetail.sql


class SparkEngine:
    """Runs parts of a query on Spark, and joins with Dovetail. Only samples of join inputs are computed here."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.exact = spark.conf.get("spark.sql.caseSensitive") == "true"

    def columns(self, text: str, frames: dict[str, Any]) -> Sequence[str]:
        return list(self.frame(text, frames).columns)

    def frame(self, text: str, frames: dict[str, Any]) -> DataFrame:
        used = {name: frame for name, frame in frames.items() if f"{{{name}}}" in text}
        if not used:
            text = text.replace("{{", "{").replace("}}", "}")
        return self.spark.sql(text, **used)

    def join(
        self, left: DataFrame, right: DataFrame, on: str, how: str, best: Mapping[str, Any] | None = None
    ) -> DataFrame:
        request = Request("join", (left, right), on, how)
        return join_dataframes(request) if best is None else best_dataframes(request.but(**best))


def query_spark(spark: SparkSession, text: str, views: Mapping[str, DataFrame]) -> DataFrame:
    """The result of a query with our joins in it."""
    for name, frame in views.items():
        if not isinstance(frame, DataFrame):
            raise InputError(f"{name}= is a view of the query, a Spark DataFrame; got {type(frame).__name__}.")
    tree = read_query(text)
    if tree is None:
        if views:
            raise InputError("this is no query that can be read here. Register its DataFrames as views of the session.")
        return spark.sql(text)
    engine = SparkEngine(spark)
    if keeps_best(tree):
        return _with_best(tree, engine, views)
    if views:
        tree = bind_views(tree, views)
        plain = engine.frame(frame_text(tree), dict(views))
    else:
        plain = spark.sql(text)
    result, reasons = _joined(tree, engine, plain, views)
    for reason in reasons:
        warnings.warn(f"dovetail.sql leaves a join to Spark: {reason}.", RuntimeWarning, stacklevel=LEVEL)
    return result


def _with_best(tree: exp.Query, engine: SparkEngine, views: Mapping[str, DataFrame]) -> DataFrame:
    """A query with syntax that Spark cannot parse. Parts that are not supported here are errors."""
    bound = bind_views(tree, views) if views else tree
    found = rewrite(bound, engine, views)
    for reason in found.left:
        raise InputError(f"{reason}. ASOF and NEAREST BY are joined by Dovetail alone.")
    return engine.frame(found.text, found.frames)


def _joined(
    tree: exp.Query, engine: SparkEngine, plain: DataFrame, views: Mapping[str, DataFrame]
) -> tuple[DataFrame, list[str]]:
    """The result with our joins in it, and why other joins are left to Spark."""
    try:
        if engine.spark.conf.get("spark.sql.parser.escapedStringLiterals") == "true":
            raise Unsupported("the setting spark.sql.parser.escapedStringLiterals changes what strings mean")
        found = rewrite(tree, engine, views)
        if not found.taken:
            return plain, found.left
        result = engine.frame(found.text, found.frames)
        types, wanted = ([field.dataType for field in frame.schema.fields] for frame in (result, plain))
        if types != wanted:
            raise Unsupported(f"the result would have columns of other types: {types} instead of {wanted}")
        return result.toDF(*plain.columns), found.left
    except Exception as error:
        return plain, [str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__]
