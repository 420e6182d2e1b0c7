"""What operators remember: rows, indexes, blocks on disk, and the budget they must keep to."""
