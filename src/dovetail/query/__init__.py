"""Finds the joins in SQL queries, without Spark: the inputs, the condition, and the remaining parts of the query."""
