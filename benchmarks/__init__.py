"""Benchmarks: declarative scenarios, contenders, and the ratios between them."""
