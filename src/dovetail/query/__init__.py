"""SQL queries read for their joins, without Spark: what is joined, on which condition, and what is left."""
