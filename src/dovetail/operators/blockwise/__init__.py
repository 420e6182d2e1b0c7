"""Rows by the order of their keys: in memory by region, on disk in sorted blocks that meet each other."""
