"""DINER whose evicted rows are merged in sorted runs."""
