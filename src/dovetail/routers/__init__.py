"""Which cells a row visits, so that every matching pair meets in exactly one cell."""
