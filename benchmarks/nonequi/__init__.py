"""A benchmark of joins without equal keys. README.md says what it measures and how to run it."""
