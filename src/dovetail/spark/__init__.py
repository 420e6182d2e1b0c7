"""Joins on Spark. The only package that imports pyspark."""

from dovetail.spark.joins import explain_dataframes, join_dataframes

__all__ = ["explain_dataframes", "join_dataframes"]
