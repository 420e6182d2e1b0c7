"""Joins of plain Spark code, found in Spark's own planning and run by Dovetail."""
