"""The model of Diag-Join: how well two tables are clustered, how large a window has to be, what a join will cost."""
