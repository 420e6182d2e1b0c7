"""The three queries of the SPO-Join paper, over synthetic rows shaped like its data.

Q1   R.POWER < S.POWER AND R.COOL > S.COOL                         racks and cooling, two streams
Q2   |lon1 - lon2| < 0.03 AND |lat1 - lat2| < 0.03, self-join      places of taxi rides
Q3   dist1 > dist2 AND fare1 < fare2, self-join                    taxi rides that were longer and cheaper
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.baselines.predicates import Floats, Query, Words

Q1 = Query.of("<", ">")
Q2 = Query.of("band<", "band<", width=0.03, self_join=True, once=True)
Q3 = Query.of(">", "<", self_join=True)
EQUALITY = Query.of("=")


class Workload(NamedTuple):
    query: Query
    sides: Words
    keys: Floats  # [row, predicate]


def racks(rows: int, noise: float = 0.3, seed: int = 0) -> Workload:
    """Cooling follows power; the looser the relation, the more results."""
    rng = np.random.default_rng(seed)
    power = rng.random(rows)
    return Workload(Q1, rng.integers(0, 2, rows), np.column_stack([power, power + noise * rng.random(rows)]))


def places(rows: int, seed: int = 0) -> Workload:
    """A dense centre with wide surroundings."""
    rng = np.random.default_rng(seed)
    spread = np.where(rng.random(rows) < 0.7, 0.02, 0.08)[:, None]
    return Workload(Q2, np.zeros(rows, np.int64), rng.normal((-73.97, 40.75), spread, (rows, 2)))


def rides(rows: int, seed: int = 0) -> Workload:
    """Fares follow distances, with ties: cents and hundredths of a mile."""
    rng = np.random.default_rng(seed)
    distance = np.round(rng.lognormal(0.7, 0.8, rows), 2)
    fare = np.round(2.5 + 2.5 * distance * rng.lognormal(0, 0.25, rows), 1)
    return Workload(Q3, np.zeros(rows, np.int64), np.column_stack([distance, fare]))


def codes(rows: int, domain: int, seed: int = 0) -> Workload:
    """For equality: every code occurs rows / domain times."""
    rng = np.random.default_rng(seed)
    return Workload(EQUALITY, rng.integers(0, 2, rows), rng.integers(0, domain, (rows, 1)).astype(np.float64))
