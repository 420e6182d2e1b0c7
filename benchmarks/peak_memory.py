"""Checks that a join takes at most 1.3 times its output plus twice its key columns, on top of its inputs.

    python -m benchmarks.peak_memory

Each join runs in a separate process, first on few rows to load the kernels, then in full. The peak is the one that
Linux reports (VmHWM). Joins use the public API, return whole rows as one table, and run on all cores.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dovetail
from benchmarks.whole_rows import Sides, intervals, star, two_inequalities, unique_keys, wide

WARM = 20_000  # rows

JOINS: dict[str, tuple[Callable[[], Sides], str, tuple[str, ...]]] = {
    "two inequalities": (lambda: two_inequalities(300_000, 0.0007), "l.a < r.a AND l.b > r.b", ("a", "b")),
    "overlap": (lambda: intervals(300_000, 10), "l.s < r.e AND l.e > r.s", ("s", "e")),
    "band": (lambda: intervals(300_000, 10), "abs(l.s - r.s) <= 500", ("s",)),
    "equality": (lambda: unique_keys(1_000_000, "ints"), "l.k = r.k", ("k",)),
    "equality, strings": (lambda: unique_keys(1_000_000, "strings"), "l.k = r.k", ("k",)),
    "star": (lambda: star(10_000_000, 1000), "l.k = r.k", ("k",)),
    "40 columns": (lambda: wide(100_000, 0.0006), "l.a < r.a AND l.b > r.b", ("a", "b")),
}


def measure(name: str) -> str:
    data, on, keys = JOINS[name]
    left, right = data()
    dovetail.join(left.slice(0, WARM), right.slice(0, WARM), on)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    output = dovetail.join(left, right, on).nbytes
    peak = _status("VmHWM") - before
    allowed = 1.3 * output + 2 * sum(table[key].nbytes for table in (left, right) for key in keys)
    verdict = "kept" if peak <= allowed else "exceeded"
    return f"{name:20} output {output / 1e6:5.0f} MB, peak {peak / 1e6:5.0f} MB of {allowed / 1e6:5.0f} MB: {verdict}"


def _status(field: str) -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(measure(sys.argv[1]))
    else:
        for join in JOINS:
            subprocess.run([sys.executable, "-m", "benchmarks.peak_memory", join], check=True)
