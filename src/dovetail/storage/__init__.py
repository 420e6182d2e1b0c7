"""The state of operators: rows, indexes, blocks on disk, and the memory budget."""
