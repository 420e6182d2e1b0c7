"""Ways to run an operator: the driver that all share, in process, and simulated."""
