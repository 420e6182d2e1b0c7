"""DINER: what stays in memory is what gives results; what was evicted is joined block by block."""
