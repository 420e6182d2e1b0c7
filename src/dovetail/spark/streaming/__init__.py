"""Joins of streams: cells with state, with windows and without."""
