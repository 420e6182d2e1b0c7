"""The demo: two servers that stall, a join on Spark that uses the stalls, and Spark's own join for comparison."""
