"""Runs joins: in process, at rest and as rows arrive, by a driver that all operators share."""
