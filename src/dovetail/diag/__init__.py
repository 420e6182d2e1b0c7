"""The model of Diag-Join: how well two tables are clustered, how large the window has to be, and what the join
costs."""
