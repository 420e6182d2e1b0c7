"""Reproduces the claims of papers: `python -m benchmarks.papers [name …]` prints printed and measured figures."""
