"""How often the intervals of estimates contain the true value if the orders of the two inputs depend on each other.

    python -m benchmarks.estimate_orders [workloads]

prints coverage by kind of order, operator and moment, the share without an estimate, and the width of intervals.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import dovetail
from dovetail.core.metrics import Estimate
from dovetail.core.rows import Arrival, Event
from dovetail.execution.steps import Sizes, Step

Words = NDArray[np.int64]

ORDERS = ("independent", "same", "reversed", "shifted", "blocks", "permuted blocks", "near")
OPERATORS = (
    "auto",
    "adaptive",
    "diner",
    "diner_merge",
    "dphj",
    "hmj",
    "miner",
    "mjoin",
    "nested_loop",
    "pmj",
    "rpj",
    "shj",
    "spo",
    "xjoin",
)
IN_MEMORY = ("shj", "spo", "mjoin")  # do not spill
MOMENTS = ("first", "10 %", "50 %", "90 %")
KEYS = ("unique", "few repeats", "many repeats", "skewed")
CONDITIONS = ("l.k = r.k", "l.k = r.k AND l.v < r.v", "l.k BETWEEN r.k - 1 AND r.k + 1")
LEAST, MOST = 4_000, 60_000  # rows of an input
MOST_REPEATED = 16_000  # when keys have many partners


class Workload(NamedTuple):
    order: str
    keys: str
    left: pa.Table
    right: pa.Table
    on: str
    algorithm: str
    memory: str

    @classmethod
    def draw(cls, seed: int, order: str | None = None, algorithm: str | None = None) -> Workload:
        """Orders and operators are used in turn; everything else is random."""
        rng = np.random.default_rng(seed)
        order = order or ORDERS[seed % len(ORDERS)]
        algorithm = algorithm or OPERATORS[seed // len(ORDERS) % len(OPERATORS)]
        keys = KEYS[rng.integers(len(KEYS))]
        most = MOST if keys in KEYS[:2] else MOST_REPEATED
        rows = int(np.exp(rng.uniform(np.log(LEAST), np.log(most))))
        mine = draw_keys(rng, keys, rows)
        theirs = mine[places(rng, order, rows)]
        if rng.random() < 0.3:  # payments: some orders have none, others several
            times = rng.choice([0, 1, 1, 2], rows)
            theirs = np.repeat(theirs, times)
        left, right = (pa.table({"k": k, "v": rng.random(len(k))}) for k in (mine, theirs))
        on = CONDITIONS[rng.choice(3, p=[0.6, 0.2, 0.2])]
        if algorithm not in ("auto", "pmj", "nested_loop", "spo"):
            on = on if "BETWEEN" not in on else CONDITIONS[0]
        memory = "256MB" if algorithm in IN_MEMORY else ("256MB", "1MB", "400KB")[rng.integers(3)]
        return cls(order, keys, left, right, on, algorithm, memory)


def draw_keys(rng: np.random.Generator, keys: str, rows: int) -> Words:
    match keys:
        case "unique":
            return rng.permutation(3 * rows)[:rows] * 4  # so that only equal keys are within a band
        case "few repeats":
            return rng.integers(0, max(2, int(rows * rng.uniform(0.05, 1))), rows)
        case "many repeats":
            return rng.integers(0, int(rng.uniform(100, 1000)), rows)
        case _:
            weights = 1 / np.arange(1, rows) ** rng.uniform(0.4, 0.9)
            return rng.permutation(rows)[rng.choice(rows - 1, rows, p=weights / weights.sum())]


def places(rng: np.random.Generator, order: str, rows: int) -> Words:
    """For each right row, the position of its left partner in the order of arrival."""
    here = np.arange(rows)
    match order:
        case "independent":
            return rng.permutation(rows)
        case "same":
            return here
        case "reversed":
            return here[::-1]
        case "shifted":
            return np.roll(here, int(rows * rng.uniform(0.02, 0.98)))
        case "blocks":  # filled day by day, in any order within a day
            return np.concatenate([rng.permutation(part) for part in np.array_split(here, rng.integers(4, 60))])
        case "permuted blocks":
            parts = np.array_split(here, rng.integers(4, 60))
            return np.concatenate([parts[p] for p in rng.permutation(len(parts))])
        case _:  # a little later or earlier
            return np.argsort(here + rng.normal(0, rows * rng.choice([0.0005, 0.01, 0.05]), rows), kind="stable")


class Seen(NamedTuple):
    moment: str
    estimate: Estimate | None


@contextmanager
def count_rows() -> Iterator[list[int]]:
    """Counts the rows of both inputs that have arrived in the running join."""
    came, watch = [0], Sizes.watch

    def counted(self: Sizes, events: Iterable[Event]) -> Iterator[Event]:
        for event in watch(self, events):
            came[0] += event.batch.num_rows if isinstance(event, Arrival) else 0
            yield event

    Sizes.watch = counted  # type: ignore[method-assign]  # steps do not say how much was read
    try:
        yield came
    finally:
        Sizes.watch = watch  # type: ignore[method-assign]


def run(workload: Workload, aggregate: Mapping[str, str] | None = None) -> Iterator[tuple[float, Step]]:
    """The steps, each with the share of the inputs that has arrived."""
    rows = workload.left.num_rows + workload.right.num_rows
    with count_rows() as came:
        for step in dovetail.progressive(
            workload.left,
            workload.right,
            workload.on,
            algorithm=workload.algorithm,
            memory=workload.memory,
            aggregate=aggregate,
        ):
            yield came[0] / rows, step


def watch(workload: Workload) -> tuple[int, list[Seen], int]:
    """The true number, the estimate at each moment, and how many intervals had zero width before the end."""
    shares = {moment: float(moment[:-2]) / 100 for moment in MOMENTS[1:]}
    seen: dict[str, Estimate | None] = {}
    nothing, results, empty = None, 0, []
    for read, step in run(workload):
        results, nothing = step.results, step.estimate
        if step.estimate is not None:
            seen.setdefault("first", step.estimate)
            empty.append((step.estimate.low == step.estimate.high, step.estimate, read))
        for moment, share in shares.items():
            if read >= share:
                seen.setdefault(moment, step.estimate)
    wrong = sum(flat and (read < 1 or estimate.total != results) for flat, estimate, read in empty)
    assert nothing is None or nothing.total == results
    return results, [Seen(moment, seen.get(moment)) for moment in MOMENTS], wrong


class Tally:
    def __init__(self) -> None:
        self._inside: dict[tuple[str, str], list[bool]] = defaultdict(list)
        self._widths: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._asked: dict[tuple[str, str], int] = defaultdict(int)
        self.flat = 0

    def add(self, workload: Workload) -> list[str]:
        """Add the estimates for a workload. Returns the moments at which they were wrong."""
        truth, said, flat = watch(workload)
        self.flat += flat
        missed = []
        for moment, estimate in said:
            for group in (workload.order, workload.algorithm, workload.keys, "all"):
                at = (group, moment)
                self._asked[at] += 1
                if estimate is not None:
                    self._inside[at].append(estimate.low <= truth <= estimate.high)
                    self._widths[at].append((estimate.high - estimate.low) / 2 / max(1, truth))
            if estimate is not None and not estimate.low <= truth <= estimate.high:
                missed.append(f"{moment}: {estimate.total:.0f} ({estimate.low:.0f} to {estimate.high:.0f}) of {truth}")
        return missed

    @property
    def asked(self) -> int:
        """The number of possible estimates."""
        return sum(self._asked["all", moment] for moment in MOMENTS)

    def coverage(self, group: str, moments: Sequence[str] = MOMENTS) -> tuple[int, int]:
        """The number of intervals that contain the true number, and the number of all intervals."""
        inside = [one for moment in moments for one in self._inside[group, moment]]
        return sum(inside), len(inside)

    def lines(self) -> Iterator[str]:
        yield f"{'':16}" + "".join(f"{moment:>30}" for moment in MOMENTS)
        yield f"{'':16}" + f"{'holds':>10}{'none':>8}{'± median':>12}" * len(MOMENTS)
        for group in (*ORDERS, *OPERATORS, *KEYS, "all"):
            cells = []
            for moment in MOMENTS:
                inside, asked = self._inside[group, moment], self._asked[group, moment]
                if not asked:
                    cells.append(f"{'':30}")
                    continue
                holds = f"{np.mean(inside):.3f}" if inside else "-"
                width = f"{np.median(self._widths[group, moment]):.2%}" if inside else "-"
                cells.append(f"{holds:>10}{1 - len(inside) / asked:>8.0%}{width:>12}")
            yield f"{group:16}" + "".join(cells)
        yield f"intervals without width before the end: {self.flat}"


def _print(workloads: int) -> None:
    tally = Tally()
    for seed in range(workloads):
        workload = Workload.draw(seed)
        missed = tally.add(workload)
        if missed:
            rows = f"{workload.left.num_rows} x {workload.right.num_rows}"
            print(
                seed,
                workload.order,
                workload.keys,
                workload.on,
                workload.algorithm,
                workload.memory,
                rows,
                *missed,
                sep=", ",
            )
    print(*tally.lines(), sep="\n")


if __name__ == "__main__":
    _print(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
