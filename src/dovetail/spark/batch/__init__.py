"""Joins and aggregates of DataFrames at rest."""
