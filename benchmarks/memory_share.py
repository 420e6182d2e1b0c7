"""How a budget in bytes is used: the share taken by the rows themselves, and the results found while rows arrive.

    python -m benchmarks.memory_share [algorithm …]

Payload is the number of bytes of the resident rows as Arrow counts them, divided by the budget: the median while rows
arrive, once rows have been spilled; for PMJ, which empties its memory with every run, the maximum. Memory is 5 % of the
input.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import dovetail
from dovetail.core.metrics import Moment
from dovetail.execution import monitor

ALGORITHMS = ("diner", "diner_merge", "xjoin", "hmj", "rpj", "dphj", "pmj", "miner", "mjoin")
SEVERAL = ("miner", "mjoin")  # joined over three inputs
KEYS = {"uniform": 0.0, "zipf 1": 1.0}  # exponents
DOMAIN = 20_000
ROWS = 60_000  # per input
WIDTHS = (60, 70, 200)
MEMORY = 0.05  # share of the input's bytes


class EveryMoment(dovetail.Recording):
    """Records every moment of a join, however fast it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Moment] = []

    def tell(self, moment: Moment) -> None:
        super().tell(moment)
        self.told.append(moment)


class Shares(NamedTuple):
    payload: float  # share of the memory
    early: float  # share of the results
    seconds: float  # CPU time


def table(rows: int, width: int, skew: float, seed: int, text: bool) -> pa.Table:
    """Rows of this many bytes: a key, and a string or numbers."""
    rng = np.random.default_rng(seed)
    keys = pa.array(_keys(rng, rows, skew))
    if not text:
        columns = {f"n{i}": rng.integers(0, 1 << 40, rows) for i in range(width // 8 - 1)}
        return pa.table({"k": keys, **columns, **({"n": np.zeros(rows, np.int32)} if width % 8 else {})})
    letters = rng.integers(97, 123, (rows, width - 12), dtype=np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * (width - 12)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters.ravel())]
    return pa.table({"k": keys, "s": pa.Array.from_buffers(pa.string(), rows, buffers)})


def _keys(rng: np.random.Generator, rows: int, skew: float) -> NDArray[np.int64]:
    likely = 1 / np.arange(1, DOMAIN + 1) ** skew
    return rng.choice(DOMAIN, rows, p=likely / likely.sum()).astype(np.int64)


def measure(algorithm: str, rows: int, width: int, skew: float, *, text: bool, memory: int | None = None) -> Shares:
    inputs = 3 if algorithm in SEVERAL else 2
    tables = [table(rows, width, skew, seed, text) for seed in range(inputs)]
    memory = memory or int(sum(side.nbytes for side in tables) * MEMORY)
    recording = EveryMoment()
    started = time.process_time()
    if inputs == 2:
        left, right = tables
        steps = dovetail.progressive(left, right, "l.k = r.k", memory=memory, algorithm=algorithm, record=recording)
    else:
        named, on = dict(zip("abc", tables, strict=True)), "a.k = b.k AND b.k = c.k"
        steps = dovetail.progressive(named, on=on, memory=memory, algorithm=algorithm, record=recording)
    found = {"arriving": 0, "all": 0}
    for step in steps:
        found["all"] += step.batch.num_rows
        found["arriving"] += step.batch.num_rows if step.phase == "arriving" else 0
    seconds = time.process_time() - started
    return Shares(payload_share(recording.told, algorithm, width, memory), found["arriving"] / found["all"], seconds)


def payload_share(moments: list[Moment], algorithm: str, width: int, memory: int) -> float:
    """The share of the memory taken by rows, once it has been full."""
    full = [m for m in moments if m.phase == "arriving" and (m.spilled_rows or algorithm == "pmj")]
    shares = [(moment.resident_rows or 0) * width / memory for moment in full]
    return float(max(shares) if algorithm == "pmj" else np.median(shares))


def main(chosen: list[str]) -> None:
    monitor.EVERY_S = 0.0  # a moment for every event
    print("algorithm  row bytes  columns  keys     payload  early  CPU s")
    for algorithm in chosen or ALGORITHMS:
        for width in WIDTHS:
            for text in (True, False):
                for keys, skew in KEYS.items():
                    # With three inputs, a frequent key has too many results to list.
                    rows = ROWS if algorithm not in SEVERAL else ROWS // (12 if skew else 3)
                    shares = measure(algorithm, rows, width, skew, text=text)
                    kind = "text" if text else "numbers"
                    line = f"{algorithm:9}  {width:9}  {kind:7}  {keys:7}  {shares.payload:7.3f}"
                    print(f"{line}  {shares.early:5.3f}  {shares.seconds:5.1f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
