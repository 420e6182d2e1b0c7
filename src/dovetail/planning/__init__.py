"""From a condition and statistics to a plan: which router, which operator, and why."""
