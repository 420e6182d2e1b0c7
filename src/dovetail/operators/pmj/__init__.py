"""Sorted runs, and their merge under a sweep line."""
