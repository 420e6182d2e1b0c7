"""Chooses the plan of a join, from a condition and statistics: which router, which operator, and why."""
