"""Joins on Spark. The only package that imports pyspark."""

from dovetail.spark.joins import count_dataframes, explain_dataframes, join_dataframes

__all__ = ["count_dataframes", "explain_dataframes", "join_dataframes"]
