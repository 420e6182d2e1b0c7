"""The laboratory: one operator, a scripted schedule or a simulated clock."""
