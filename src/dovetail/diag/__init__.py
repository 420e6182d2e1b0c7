"""The model of Diag-Join: how well two tables are clustered, the size of the window, and the cost of the join."""
