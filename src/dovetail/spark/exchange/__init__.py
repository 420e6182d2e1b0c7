"""Moves rows between Spark and Python, and into files."""
