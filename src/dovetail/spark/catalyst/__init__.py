"""Joins in Spark's own planning that Dovetail runs: those of plain Spark code, and those of `dovetail.join`."""
