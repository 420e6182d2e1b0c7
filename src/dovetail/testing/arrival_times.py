"""Arrival times: seconds from the start, ascending, one per row.

The functions can be combined: `with_silences(exponential(1000, rng), fragments=10, silence=0.5)`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.sources.paced import Seconds
from dovetail.testing.values import Random, draw_positions, zipf_shares


def steady(rows: int, gap_s: float = 1e-3) -> Seconds:
    """One row after each gap: the reliable network in RPJ."""
    return gap_s * np.arange(1, rows + 1, dtype=np.float64)


def exponential(rows: int, rng: Random, mean_gap_s: float = 1e-3) -> Seconds:
    """Independent arrivals at a constant rate.

    DINER prints a rate without a unit; 10 periods of 10 s for 100,000 rows (Fig. 15) imply 1 ms between two rows.
    """
    return np.cumsum(rng.exponential(mean_gap_s, rows))


def unreliable(rows: int, rng: Random, *, skew: float = 1.05, longest_ms: int = 30) -> Seconds:
    """RPJ's unreliable network: gaps of 1, 2, …, 30 ms with Zipf frequencies, mostly short; 4 % are longer than 25 ms.

    The exponent is not printed; with this one, two million rows end after the printed 14,000 s.
    """
    gaps_ms = 1 + draw_positions(rows, zipf_shares(longest_ms, skew), rng)
    return np.cumsum(gaps_ms) / 1000


def with_silences(seconds: Seconds, *, fragments: int = 10, silence: float) -> Seconds:
    """DINER: rows are sent in fragments of equal size, each followed by a silence of `silence` times its duration."""
    bounds = np.linspace(0, len(seconds), fragments + 1).astype(np.int64)
    filled = np.flatnonzero(np.diff(bounds))
    ends = seconds[bounds[filled + 1] - 1]
    began_late = silence * np.concatenate([[0.0], ends[:-1]])  # the total silence before each fragment
    return seconds + np.repeat(began_late, np.diff(bounds)[filled])


def dealt(seconds: Seconds, rng: Random, *, ratio: float = 1.0) -> tuple[Seconds, Seconds]:
    """RPJ: one sequence of arrivals; each belongs to the left relation with odds of `ratio` to 1."""
    left: NDArray[np.bool_] = rng.random(len(seconds)) * (ratio + 1) < ratio
    return seconds[left], seconds[~left]
