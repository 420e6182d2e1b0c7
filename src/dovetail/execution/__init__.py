"""How joins run: the driver that all operators share, in process, at rest and as rows arrive."""
