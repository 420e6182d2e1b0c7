"""The process that Spark forks Python workers from, with all that our tasks import imported already.

A worker by itself imports pandas, Arrow, Numba and this package and sets the compiler up: more than two seconds of
processor time, for every worker, and again when Spark has let idle ones go, after a minute. Forked from here, it has
them. Sessions of `local_session` do so; others with `spark.python.daemon.module=dovetail.spark.session.daemon`.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from pathlib import Path

JEMALLOC = "jemalloc_bg_thd"  # Arrow's allocator on x86: its locks are taken and given back around a fork
PRELOADED = (
    "dovetail.spark.batch.cell",
    "dovetail.spark.streaming.cell_processor",
    "dovetail.spark.streaming.static_join",
)
"""What tasks run, by name: a session knows nothing of the joins above it, and Spark finds this daemon by name, too."""
TASKS = "pyspark.worker"  # workers of other kinds (sources, drivers of stateful operators) run little of ours


def preload() -> None:
    """Import what tasks need, and have a first kernel loaded, all in this thread."""
    import pandas as pd  # noqa: F401
    import pyarrow as pa
    import pyspark.worker  # noqa: F401

    from dovetail.condition import parse
    from dovetail.execution.at_rest import count_at_rest

    for name in PRELOADED:
        import_module(name)
    rows = pa.record_batch({"k": [1, 2]})
    count_at_rest(parse("l.k = r.k", rows.schema, rows.schema), rows, rows)
    gc.collect()
    gc.freeze()  # what is shared is not copied by looking at it


def threads() -> int:
    """How many there are, without those that a fork may leave behind."""
    if sys.platform != "linux":
        return 1
    names = [Path(f"/proc/self/task/{number}/comm").read_text().strip() for number in os.listdir("/proc/self/task")]
    return sum(name != JEMALLOC for name in names)


def main() -> None:
    if sys.argv[1:2] == [TASKS]:
        preload()
        if threads() > 1:  # OpenBLAS's, if OMP_NUM_THREADS is not 1 as Spark sets it: a fork copies locks, not threads
            os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
