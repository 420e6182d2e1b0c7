"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import random


def backoff(failures: int, first: float, longest: float) -> float:
    """Twice as long after each failure in a row, up to the longest pause. Any unit of time."""
    return min(longest, first * 2.0 ** (failures - 1))


def jittered(pause: float) -> float:
    """Up to half of it less, at random, so that workers do not ask all at once."""
    return random.uniform(pause / 2, pause)
