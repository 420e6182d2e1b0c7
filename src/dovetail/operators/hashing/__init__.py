"""Hash joins that spill: partitions in memory, runs on disk, and who leaves when memory is full."""
