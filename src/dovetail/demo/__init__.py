"""The demo: two servers that stall, a join on Spark that uses the stalls, and beside it Spark's own join."""
