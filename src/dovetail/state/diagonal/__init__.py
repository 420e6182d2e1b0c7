"""What moves along the diagonal: a ring of hash tables, partitions for what it misses, repeated keys."""
