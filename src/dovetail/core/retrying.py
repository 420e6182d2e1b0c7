"""How long to wait before retrying."""

from __future__ import annotations

import random


def backoff(failures: int, first: float, longest: float) -> float:
    """Twice as long after each failure in a row, up to the longest pause. Works in any unit of time."""
    return min(longest, first * 2.0 ** (failures - 1))


def jittered(pause: float) -> float:
    """Shortened by up to half, at random, so that workers do not retry all at once."""
    return random.uniform(pause / 2, pause)
