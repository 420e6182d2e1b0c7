"""Joins of several DataFrames: streams, or tables at rest."""
