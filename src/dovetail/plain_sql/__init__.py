"""Entry point of `dovetail.sql`: runs a query on Spark, or over tables in process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.errors import InputError
from dovetail.plain_sql.in_process import query_tables


def sql(spark: Any, query: str | None, tables: Mapping[str, Any]) -> Any:
    """Run on Spark if the first argument is a session or the tables are DataFrames, else in process."""
    if isinstance(spark, str) and query is None:
        frames = [type(table).__module__.startswith("pyspark.sql") for table in tables.values()]
        if any(frames) and not all(frames):
            raise InputError("some tables are Spark DataFrames and others are not: give all of the same kind.")
        if not frames or not all(frames):
            return query_tables(spark, tables)
        spark, query = next(iter(tables.values())).sparkSession, spark
    if not isinstance(query, str) or not type(spark).__module__.startswith("pyspark.sql"):
        raise InputError(
            'dovetail.sql takes a Spark session and a query, dovetail.sql(spark, "SELECT …"), or a query and its '
            f'tables, dovetail.sql("SELECT …", trips=trips); got {type(spark).__name__} and {type(query).__name__}.'
        )
    from dovetail.spark import query_spark

    return query_spark(spark, query, tables)
