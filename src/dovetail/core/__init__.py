"""The vocabulary that every layer speaks: rows, codes, metrics, tables."""
