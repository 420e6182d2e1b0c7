"""The cost of the first join of a process, step by step: CPU seconds (including child processes) and elapsed seconds.

python -m benchmarks.first_use [tables] [spark] [stream]

Each kind runs in a separate process, with kernels cached by an earlier run. On a busy machine, only CPU time is
comparable.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KINDS = ("tables", "spark", "stream")
TICKS = os.sysconf("SC_CLK_TCK")
STAT_FIELDS = slice(11, 15)  # utime, stime, cutime, cstime, after the name in /proc/*/stat
PARENT = 1


class Clock:
    """Prints a line for each step."""

    def __init__(self) -> None:
        self._cpu, self._wall = 0.0, time.monotonic()
        self._began = self._wall

    def part(self, name: str) -> None:
        cpu, wall = tree_seconds(os.getpid()), time.monotonic()
        print(f"  {name:28s} {cpu - self._cpu:7.2f} {wall - self._wall:7.2f}", flush=True)
        self._cpu, self._wall = cpu, wall

    def end(self) -> None:
        print(f"  {'in all':28s} {self._cpu:7.2f} {self._wall - self._began:7.2f}", flush=True)


def tree_seconds(root: int) -> float:
    """CPU time of a process and its descendants, including those that have ended."""
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stats[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
    tree = {root}
    while found := {pid for pid, fields in stats.items() if int(fields[PARENT]) in tree} - tree:
        tree |= found
    return sum(sum(map(int, stats[pid][STAT_FIELDS])) for pid in tree if pid in stats) / TICKS


def tables() -> None:
    clock = Clock()
    clock.part("Python")
    import dovetail

    clock.part("import dovetail")
    import pyarrow as pa

    left, right = pa.table({"x": [1, 5]}), pa.table({"y": [3, 9]})
    clock.part("pyarrow, two tables")
    import numba  # noqa: F401
    import sqlglot  # noqa: F401

    clock.part("Numba, sqlglot")
    import dovetail.calls

    clock.part("modules of a join")
    dovetail.join(left, right, "l.x < r.y")
    clock.part("first join")
    dovetail.join(left, right, "l.x < r.y")
    clock.part("second join")
    clock.end()


def spark() -> None:
    clock = Clock()
    import dovetail
    from dovetail.spark.session import local_session

    clock.part("imports")
    session = local_session()
    clock.part("Spark")
    left, right = session.range(1000).toDF("x"), session.range(1000).toDF("y")
    clock.part("two DataFrames")
    joined = dovetail.join(left, right, "l.x < r.y AND l.x + 5 > r.y")
    clock.part("first join planned")
    joined.count()
    clock.part("first join run")
    dovetail.join(left, right, "l.x < r.y AND l.x + 5 > r.y").count()
    clock.part("second join")
    clock.end()
    session.stop()


def stream() -> None:
    clock = Clock()
    import pyarrow as pa
    import pyarrow.parquet as pq

    import dovetail
    from dovetail.spark.session import local_session

    clock.part("imports")
    session = local_session(conf={"spark.sql.shuffle.partitions": "2"})
    clock.part("Spark")
    with tempfile.TemporaryDirectory() as place:
        for name in "lr":
            (Path(place) / name).mkdir()
            pq.write_table(pa.table({"k": range(100)}), Path(place) / name / "0.parquet")
        left, right = (session.readStream.schema("k long").parquet(f"{place}/{name}") for name in "lr")
        joined = dovetail.join(left, right, "l.k = r.k", state_dir=f"{place}/state")
        clock.part("planned")
        writer = joined.writeStream.format("noop").option("checkpointLocation", f"{place}/checkpoint")
        query = writer.start()
        query.processAllAvailable()
        clock.part("first micro-batch")
        for name in "lr":
            pq.write_table(pa.table({"k": range(100)}), Path(place) / name / "1.parquet")
        query.processAllAvailable()
        clock.part("second micro-batch")
        query.stop()
    clock.end()
    session.stop()


def main(wanted: list[str]) -> None:
    for kind in wanted or KINDS:
        for attempt in ("to fill caches", "measured"):
            print(f"{kind}, {attempt}: seconds of processor, of the clock", flush=True)
            command = [sys.executable, "-c", f"from benchmarks.first_use import {kind}; {kind}()"]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
