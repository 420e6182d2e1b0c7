"""Joins in Spark's own planning that Dovetail runs: of plain Spark code, and those that `dovetail.join` has made."""
