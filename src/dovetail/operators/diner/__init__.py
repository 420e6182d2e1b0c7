"""DINER: keeps the rows that produce results in memory; evicted rows are joined block by block."""
