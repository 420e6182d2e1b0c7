"""A benchmark of joins without equal keys. README.md describes what it measures and how to run it."""
