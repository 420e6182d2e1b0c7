"""How rows arrive."""
