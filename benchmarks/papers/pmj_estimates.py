"""How often the intervals of the estimator contain the true number of results, and how wide they are, for many inputs.

    python -m benchmarks.papers.pmj_estimates

prints the coverage after some of 50 blocks, and with all rows in only that many blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import read_columns
from dovetail.estimation.estimate import Estimator, Interval

Words = NDArray[np.int64]
Numbers = NDArray[np.float64]

VALUES = 1000
ROWS = 10_000  # per side
BLOCKS = 50  # run pairs of a whole input
AFTER = (2, 3, 5, 10, 20, 50)  # blocks
RUNS = 600
KEYS = ("uniform", "Zipf 0.5", "Zipf 1", "taxi zones")


class Held(NamedTuple):
    """Figures of the 95 % interval after some blocks."""

    coverage: float  # the share of inputs for which it contains the true number
    width: float  # median of half its width, relative to the true number
    error: float  # relative error of the estimate, root mean square
    median_error: float  # median of the relative error


@cache
def distributions(keys: str) -> tuple[Numbers, Numbers]:
    """The probability of each key on both sides."""
    if keys == "taxi zones":
        trips = read_columns("nyc_green_2020", "pu_zone", "do_zone")
        counts = [np.bincount(np.asarray(column.drop_null()), minlength=VALUES) for column in trips.columns]
        return counts[0] / counts[0].sum(), counts[1] / counts[1].sum()
    exponent = {"uniform": 0.0, "Zipf 0.5": 0.5, "Zipf 1": 1.0}[keys]
    weights = 1 / np.arange(1, VALUES + 1) ** exponent
    return weights / weights.sum(), weights / weights.sum()


def inputs(keys: str, blocks: int, first: int, runs: int) -> Iterator[tuple[Words, int]]:
    """The number of matches in each of the first blocks, and of all rows; both sides are cut into blocks."""
    rng = np.random.default_rng(blocks)
    size = ROWS // blocks
    rows = [size] * first + [size * (blocks - first)]
    for _ in range(runs):
        left, right = (
            rng.multinomial(rows, each) for each in distributions(keys)
        )  # number of rows of each key in each part
        yield (left * right).sum(axis=1)[:first], int(left.sum(axis=0) @ right.sum(axis=0))


def intervals(
    keys: str, after: Sequence[int], blocks: int = BLOCKS, interval: Interval = "blocks", runs: int = RUNS
) -> dict[int, Held]:
    """The figures by number of known blocks."""
    size = ROWS // blocks
    found: dict[int, list[tuple[bool, float, float]]] = {count: [] for count in after}
    for matches, total in inputs(keys, blocks, max(after), runs):
        estimator = Estimator()
        for count, some in enumerate(matches.tolist(), 1):
            estimator.add(size, size, some)
            if count in found:
                estimate = estimator.estimate(size * blocks, size * blocks, interval=interval)
                assert estimate is not None
                is_inside = estimate.low <= total <= estimate.high
                found[count].append((is_inside, (estimate.high - estimate.low) / 2 / total, estimate.total / total - 1))
    return {count: _summary(np.array(lines)) for count, lines in found.items()}


def _summary(lines: Numbers) -> Held:
    inside, width, error = lines.T
    return Held(
        float(inside.mean()),
        float(np.median(width)),
        float(np.sqrt(np.mean(error**2))),
        float(np.median(np.abs(error))),
    )


def _print() -> None:
    print("coverage of the 95 % interval / half of its width, after", ", ".join(map(str, AFTER)), "blocks")
    for keys in KEYS:
        some = intervals(keys, AFTER)
        every = {count: intervals(keys, [count], count)[count] for count in AFTER}
        for title, held in ((f"of {BLOCKS}", some), ("that are all", every)):
            cells = (f"{one.coverage:.3f} / {one.width:6.1%}" for one in held.values())
            print(f"{keys:12}{title:14}", *cells, sep="  ")


if __name__ == "__main__":
    _print()
