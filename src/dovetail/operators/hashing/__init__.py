"""Hash joins that spill: partitions in memory, runs on disk, and the policies that choose what to evict."""
