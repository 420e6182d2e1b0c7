"""Joins on Spark. The only package that imports pyspark."""

from dovetail.lazy import lazy_modules
from dovetail.spark.aggregates import aggregate_dataframes, count_dataframes
from dovetail.spark.joins import explain_dataframes, join_dataframes
from dovetail.spark.multi import multijoin_dataframes
from dovetail.spark.sink import Written, write_dataframe
from dovetail.spark.waves import explain_waves, progressive_dataframes

__all__ = [
    "Written",
    "aggregate_dataframes",
    "count_dataframes",
    "explain_dataframes",
    "explain_waves",
    "join_dataframes",
    "multijoin_dataframes",
    "progressive_dataframes",
    "write_dataframe",
]

__getattr__ = lazy_modules(__name__, "session")
