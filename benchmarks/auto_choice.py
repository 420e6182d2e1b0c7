"""Results that `algorithm="auto"` finds while rows trickle in, compared with each operator requested by name.

    python -m benchmarks.auto_choice [--algorithms auto,diner,…] [--workloads uniform,…]

Every workload is joined by `dovetail.progressive(left, right, on, memory=…)`: 100,000 rows of 70 bytes on each side
(Zipf 1: 10,000), memory for 7 % of the bytes, sent in real time over some seconds with two pauses. Each figure is the
share of all results emitted by the time the last row has been sent; after the slash stands the CPU time of the whole
join.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import dovetail

ROWS = 100_000  # per side
BATCHES = 100  # per side
WIDTH = 70  # bytes
MEMORY = 0.07  # share of the input: 1 MB of 14
EVERY_S = 0.1  # between two batches of a side
PAUSE_S = 3.0
ALGORITHMS = ("auto", "diner", "diner_merge", "pmj", "xjoin", "hmj", "rpj")

Keys = tuple[NDArray[np.int64], NDArray[np.int64]]


class Sending(NamedTuple):
    """The times at which the batches of each side are sent, in seconds."""

    left: NDArray[np.float64]
    right: NDArray[np.float64]


class Workload(NamedTuple):
    keys: Keys
    on: str
    sending: Sending


def uniform(seed: int = 0) -> Keys:
    rng = np.random.default_rng(seed)
    return rng.integers(0, ROWS, ROWS), rng.integers(0, ROWS, ROWS)


def zipf(exponent: float, rows: int = ROWS) -> Keys:
    rng = np.random.default_rng(1)
    likely = 1 / np.arange(1, rows + 1) ** exponent
    names = rng.permutation(rows)
    left, right = (names[rng.choice(rows, rows, p=likely / likely.sum())] for _ in range(2))
    return left, right


def rarely_less() -> Keys:
    rng = np.random.default_rng(4)
    return rng.integers(0, 20_000 * ROWS, ROWS), rng.integers(0, ROWS, ROWS)


def drifting() -> Keys:
    """Keys around a centre that moves slowly."""
    rng = np.random.default_rng(2)
    centre = np.linspace(0, ROWS, ROWS)
    left, right = ((centre + rng.uniform(-ROWS / 10, ROWS / 10, ROWS)).astype(np.int64) for _ in range(2))
    return left, right


def clustered() -> Keys:
    """Orders and their items: partners arrive at about the same time, but keys are in no order."""
    rng = np.random.default_rng(3)
    names = rng.permutation(ROWS)
    left, right = (names[np.argsort(np.arange(ROWS) + rng.uniform(-1_500, 1_500, ROWS))] for _ in range(2))
    return left, right


def steady() -> NDArray[np.float64]:
    return np.linspace(0, EVERY_S * BATCHES, BATCHES, endpoint=False)


def with_pauses() -> NDArray[np.float64]:
    """Steady, with two pauses: after a third and after two thirds."""
    return steady() + PAUSE_S * np.floor(np.arange(BATCHES) / (BATCHES / 3)).astype(np.float64)


BOTH_PAUSE = Sending(with_pauses(), with_pauses())
ONE_PAUSES = Sending(with_pauses(), steady())
ONE_FIRST = Sending(steady() / 2, steady() / 2 + steady()[-1] / 2 + PAUSE_S)
EQUAL = "l.k = r.k"

WORKLOADS: dict[str, Callable[[], Workload]] = {
    "uniform": lambda: Workload(uniform(), EQUAL, BOTH_PAUSE),
    "zipf 0.5": lambda: Workload(zipf(0.5), EQUAL, BOTH_PAUSE),
    "zipf 0.7": lambda: Workload(zipf(0.7), EQUAL, BOTH_PAUSE),
    "zipf 1": lambda: Workload(zipf(1, ROWS // 10), EQUAL, BOTH_PAUSE),
    "drifting": lambda: Workload(drifting(), EQUAL, BOTH_PAUSE),
    "clustered": lambda: Workload(clustered(), EQUAL, BOTH_PAUSE),
    "band": lambda: Workload(uniform(), "abs(l.k - r.k) <= 1", BOTH_PAUSE),
    "inequality": lambda: Workload(rarely_less(), "l.k < r.k", BOTH_PAUSE),
    "one side first": lambda: Workload(zipf(0.5), EQUAL, ONE_FIRST),
    "one stalls": lambda: Workload(uniform(), EQUAL, ONE_PAUSES),
    "no stall": lambda: Workload(uniform(), EQUAL, Sending(steady() * 0, steady() * 0)),
}


def batches(keys: NDArray[np.int64]) -> list[pa.RecordBatch]:
    parts = np.split(keys, BATCHES)
    letters, numbers = pa.array(["x" * (WIDTH - 20)] * len(parts[0])), np.arange(len(parts[0]))
    return [pa.record_batch({"k": part, "n": numbers, "s": letters}) for part in parts]


class Clock:
    """Records when the last row was sent."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.sending = 2

    def send(self, rows: list[pa.RecordBatch], times: NDArray[np.float64]) -> Iterator[pa.RecordBatch]:
        for batch, due in zip(rows, times, strict=True):
            time.sleep(max(0.0, self.began + due - time.monotonic()))
            yield batch
        self.sending -= 1


def measure(workload: Workload, algorithm: str) -> tuple[float, float, set[str]]:
    """The share of the results found when sending ends, the CPU time, and the operators that ran."""
    sides = [batches(keys) for keys in workload.keys]
    memory = int(MEMORY * sum(batch.nbytes for side in sides for batch in side))
    started, clock = time.process_time(), Clock()
    readers = [
        pa.RecordBatchReader.from_batches(rows[0].schema, clock.send(rows, times))
        for rows, times in zip(sides, workload.sending, strict=True)
    ]
    early, found, ran = 0, 0, set()
    for step in dovetail.progressive(readers[0], readers[1], workload.on, memory=memory, algorithm=algorithm):
        found += step.batch.num_rows
        ran.add(step.operator or algorithm)
        if clock.sending:
            early = found
    return early / found, time.process_time() - started, ran


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    chosen = parser.parse_args()
    algorithms = chosen.algorithms.split(",")
    print(f"{'':15}" + "".join(f"{name:>16}" for name in algorithms))
    for name in chosen.workloads.split(","):
        print(f"{name:15}", end="", flush=True)
        workload, ran = WORKLOADS[name](), set()
        for algorithm in algorithms:
            try:
                share, seconds, operators = measure(workload, algorithm)
            except dovetail.DovetailError:
                print(f"{'-':>16}", end="", flush=True)
                continue
            ran |= operators if algorithm == "auto" else set()
            print(f"{f'{share:.3f} / {seconds:.1f} s':>16}", end="", flush=True)
        print(f"   auto: {', '.join(sorted(ran))}")


if __name__ == "__main__":
    main()
