"""Joins of streams: cells with state, with or without windows."""
