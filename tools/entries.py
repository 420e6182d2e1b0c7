"""Counts, for typical calls of dovetail, the calls from one of its files into another and the files involved.

    python tools/entries.py                     all flows except the one on Spark
    python tools/entries.py window diner        these flows
    python tools/entries.py spark -v            also the calls between files, the most frequent first

Each flow runs once as a warm-up (imports, compiled kernels, the Spark session), then again to be counted. Resuming a
generator counts as a call. Calls in threads that the flow starts are counted; calls in Spark's workers are not.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parents[1]
SOURCE = f"{ROOT / 'src' / 'dovetail'}{os.sep}"

SMALL = 250
LARGE = 60_000
BATCH = 1_000
EARLIER = 20  # micro-batches
BAND = "l.x BETWEEN r.x - 1 AND r.x + 1"

Call = tuple[str, str, str, int]
"""Calling file, called file, function, and the line on which the function starts."""


class Entries:
    """Counts calls from one file of dovetail into another."""

    def __init__(self) -> None:
        self.calls: Counter[Call] = Counter()
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE):
            return
        self.files.add(code.co_filename)
        caller = frame.f_back
        if caller is None:
            return
        source = caller.f_code.co_filename
        if source != code.co_filename and source.startswith(SOURCE):
            self.calls[source, code.co_filename, code.co_qualname, code.co_firstlineno] += 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def tables(rows: int) -> tuple[pa.Table, pa.Table]:
    draws = np.random.default_rng(7)
    made = [
        pa.table({"id": np.arange(rows), "k": draws.integers(0, rows, rows), "x": draws.integers(0, 50 * rows, rows)})
        for _ in range(2)
    ]
    return made[0], made[1]


# The flows: each prepares its inputs, and returns the call to be counted.


def join() -> Callable[[], object]:
    import dovetail

    left, right = tables(SMALL)
    return lambda: dovetail.join(left, right, on=BAND)


def progressive(algorithm: str) -> Callable[[], object]:
    import dovetail

    left, right = tables(LARGE)

    def run() -> int:
        one, other = (pa.RecordBatchReader.from_batches(t.schema, t.to_batches(BATCH)) for t in (left, right))
        return sum(step.batch.num_rows for step in dovetail.progressive(one, other, on=BAND, algorithm=algorithm))

    return run


def spark() -> Callable[[], object]:
    from pyspark.sql import SparkSession

    import dovetail

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    left, right = (session.createDataFrame(table.to_pandas()) for table in tables(SMALL))
    return lambda: dovetail.join(left, right, on=BAND)


def window() -> Callable[[], object]:
    """One micro-batch of a stream that has run for a while, in one cell. A test double takes the place of Spark."""
    sys.path.insert(0, str(ROOT))
    import pytest
    from tests.spark.streaming import window_cells

    import dovetail

    ids = ("left_row", "right_row")
    pair = zip(ids, tables(LARGE), strict=True)
    left, right = (table.rename_columns([name, *table.column_names[1:]]) for name, table in pair)
    bounds, state = dovetail.window(rows=1000), tempfile.mkdtemp()
    running = window_cells.played(pytest.MonkeyPatch())
    condition = "l.x < r.x AND l.k > r.k"
    query = window_cells.query((left, right), condition, "inner", bounds, state, cells=1, partitions=1)
    running.query = query
    done = itertools.count()

    def micro_batch() -> object:
        rows = range((number := next(done)) * SMALL, (number + 1) * SMALL)
        return query.micro_batch([(0, rows), (1, rows)], random.Random(number))

    for _ in range(EARLIER):
        micro_batch()
    return micro_batch


FLOWS: dict[str, Callable[[], Callable[[], object]]] = {
    "join": join,
    "spark": spark,
    "window": window,
    "auto": lambda: progressive("auto"),
    "diner": lambda: progressive("diner"),
}


def count(flow: str) -> Entries:
    run = FLOWS[flow]()
    run()
    entries = Entries()
    with entries.counted():
        run()
    return entries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flows", nargs="*", choices=(*FLOWS, []), help="by default all except spark")
    parser.add_argument("-v", "--verbose", type=int, nargs="?", const=40, default=0, help="the most frequent calls")
    asked = parser.parse_args()
    for flow in asked.flows or [name for name in FLOWS if name != "spark"]:
        entries = count(flow)
        lines = [f"{flow:8} {len(entries.files):4} files {sum(entries.calls.values()):8,} entries"]
        for (source, target, name, line), calls in entries.calls.most_common(asked.verbose):
            lines.append(f"{calls:8} {source.removeprefix(SOURCE)} -> {target.removeprefix(SOURCE)}:{line} {name}")
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
