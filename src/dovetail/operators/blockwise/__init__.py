"""Rows in key order: in memory by region, on disk in sorted blocks that are joined block by block."""
