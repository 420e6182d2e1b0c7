"""What the papers claim, run again: `python -m benchmarks.papers [name …]` prints it beside what comes out here."""
