"""Diag-Join of Parquet files on Spark."""
