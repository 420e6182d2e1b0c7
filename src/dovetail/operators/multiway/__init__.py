"""Joins of several inputs: residents with an index per attribute, blocks on disk, and eviction policies."""
