"""How many results there will be, with bounds: estimates, weighted samples, aggregates."""
