"""Joins of three or more DataFrames: streams, or tables at rest."""
