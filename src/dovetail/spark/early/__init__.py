"""Early results from DataFrames at rest: waves of small jobs."""
