"""The workloads of the DINER and RPJ papers by figure, each from a seed: keys `k`, and their arrival times."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from dovetail.sources.paced import Seconds
from dovetail.testing import arrival_times, values
from dovetail.testing.values import Random, Values
from dovetail.testing.workload import Workload

ROWS = 100_000  # per relation in DINER's experiments


def zipf_keys(skew: float = 1.0, rows: tuple[int, int] = (ROWS, ROWS), seed: int = 0) -> Workload:
    """DINER Fig. 10; unequal sizes at one rate, so that the smaller relation ends early: Fig. 18."""
    rng = np.random.default_rng(seed)
    times = [arrival_times.exponential(n, rng) for n in rows]
    return _keyed([values.zipf(n, rng, skew=skew) for n in rows], times)


def normal_keys(
    shift: float = 0.0, extra_variance: float = 0.0, rows: int = ROWS, seed: int = 0, variance: float = 50.0
) -> Workload:
    """DINER Fig. 11: the second mean is `shift` larger. Fig. 12: the second variance is larger."""
    rng = np.random.default_rng(seed)
    left = values.normal(rows, rng, variance=variance)
    right = values.normal(rows, rng, mean=500 + shift, variance=variance + extra_variance)
    return _keyed([left, right], _exponential(rows, rng))


def sorted_intervals(intervals: int, rows: int = ROWS, seed: int = 0, *, same_order: bool = True) -> Workload:
    """DINER Fig. 14: sorted and cut into intervals, which are permuted, in the same way on both sides or not."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(intervals) for _ in range(2)]
    keys = [values.partially_sorted(values.zipf(rows, rng), orders[0 if same_order else side]) for side in (0, 1)]
    return _keyed(keys, _exponential(rows, rng))


def shifting_means(shift: float, rows: int = ROWS, seed: int = 0) -> Workload:
    """DINER Fig. 15: ten periods; for 100,000 rows they last 10 s each."""
    rng = np.random.default_rng(seed)
    times = _exponential(rows, rng)
    return _keyed([values.shifting_mean(t, rng, shift=shift, period_s=rows / 10_000) for t in times], times)


def fragments(silence: float, rows: int = ROWS, seed: int = 0) -> Workload:
    """DINER Fig. 16: ten fragments, each followed by a silence of this many times its duration."""
    rng = np.random.default_rng(seed)
    times = [arrival_times.with_silences(t, silence=silence) for t in _exponential(rows, rng)]
    return _keyed([values.zipf(rows, rng) for _ in times], times)


def rpj_keys(
    kind: Literal["harmony", "reverse"],
    ratio: float = 1.0,
    rows: int = 2_000_000,
    seed: int = 0,
    *,
    reliable: bool = True,
) -> Workload:
    """RPJ section 6: `rows` of both relations together, `ratio` to 1, over a reliable or an unreliable network."""
    rng = np.random.default_rng(seed)
    line = arrival_times.steady(rows) if reliable else arrival_times.unreliable(rows, rng)
    times = arrival_times.dealt(line, rng, ratio=ratio)
    shares = (values.harmony(), values.harmony() if kind == "harmony" else values.reverse())
    return _keyed([values.partitioned(len(t), rng, s) for t, s in zip(times, shares, strict=True)], times)


def chain(rows: int = ROWS, seed: int = 0, domain: int = 10_000) -> Workload:
    """MINER: R1.a = R2.a, R2.b = R3.b, R3.c = R4.c; R2 and R3 have Zipf keys, R1 and R4 have each key once.

    R1 and R4 do not change the size of the result. All four arrive over the same span of time.
    """
    rng = np.random.default_rng(seed)

    def keys() -> Values:
        return values.zipf(rows, rng, low=0, high=domain - 1)

    columns = (
        {"a": rng.permutation(domain)},
        {"a": keys(), "b": keys()},
        {"b": keys(), "c": keys()},
        {"c": rng.permutation(domain)},
    )
    tables = tuple(pa.table(c) for c in columns)
    return Workload(tables, tuple(arrival_times.exponential(t.num_rows, rng, 1e-3 * rows / t.num_rows) for t in tables))


def _exponential(rows: int, rng: Random) -> list[Seconds]:
    return [arrival_times.exponential(rows, rng) for _ in range(2)]


def _keyed(keys: list[Values], times: list[Seconds] | tuple[Seconds, ...]) -> Workload:
    return Workload(tuple(pa.table({"k": k}) for k in keys), tuple(times))
