"""Forks Spark's Python workers from a process that has already imported everything our tasks need.

Otherwise each worker imports pandas, Arrow, Numba and this package and sets the compiler up: more than two seconds of
CPU time, and again after Spark has stopped idle workers, after a minute. Sessions of `local_session` use this daemon;
others need `spark.python.daemon.module=dovetail.spark.session.daemon`.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from pathlib import Path

JEMALLOC = "jemalloc_bg_thd"  # Arrow's allocator on x86: it handles its locks around a fork
PRELOADED = (
    "dovetail.spark.batch.cell",
    "dovetail.spark.streaming.cell_processor",
    "dovetail.spark.streaming.static_join",
)
"""Modules that tasks use, by name: a session does not import the joins above it."""
ARCHIVE = Path("python", "lib", "pyspark.zip")  # below Spark's directory
TASKS = "pyspark.worker"  # workers of other kinds (sources, drivers of stateful operators) run little of our code


def unpacked(entry: str) -> str | None:
    """The directory to import PySpark from, if this entry of the path is an archive of the same files.

    Spark puts the archive first. It has no compiled modules: importing PySpark from it takes a second instead of a
    sixth. And the first task of each worker reads its directory again, for a tenth of a second.
    """
    path = Path(entry)
    if path.parts[-3:] == ARCHIVE.parts:
        installed, distributed = path.parents[2], path.parents[1] / "pyspark"  # by pip, or from Spark's own downloads
        for package in (distributed, installed):
            if package.name == "pyspark" and (package / "__init__.py").is_file():
                return str(package.parent)
    return None


def prefer_unpacked() -> None:
    """Replace PySpark's archive in the path. A directory that is in the path already keeps its place."""
    for entry in list(sys.path):
        directory = unpacked(entry)
        if directory is not None:
            place = sys.path.index(entry)
            sys.path[place : place + 1] = [] if directory in sys.path else [directory]
            sys.path_importer_cache.pop(entry, None)


def preload() -> None:
    """Import what tasks need, and load a first kernel, all in this thread."""
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
    gc.freeze()  # keeps shared memory pages from being copied by the collector


def threads() -> int:
    """The number of threads, without those that a fork can leave behind."""
    if sys.platform != "linux":
        return 1
    names = [Path(f"/proc/self/task/{number}/comm").read_text().strip() for number in os.listdir("/proc/self/task")]
    return sum(name != JEMALLOC for name in names)


def main() -> None:
    prefer_unpacked()
    if sys.argv[1:2] == [TASKS]:
        preload()
        if threads() > 1:  # OpenBLAS's, if OMP_NUM_THREADS is not 1, Spark's default: a fork copies locks, not threads
            os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
