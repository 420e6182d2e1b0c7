"""Estimates the number of results and aggregates over them, with bounds, from samples."""
