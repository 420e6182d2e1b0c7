"""Chooses where `dovetail join` runs: in this process if both inputs fit in its memory, else on Spark.

--in-process, --spark                     as requested
--live, --watch, --record, --report       in this process; also for remote sources and Arrow files
a function that only Spark evaluates      on Spark
otherwise                                 in this process if the inputs, as tables, take at most a quarter of the
                                          free memory: a join takes about three times the size of its rows
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dovetail.cli.doctor import INSTALL_SPARK
from dovetail.cli.early_checks import Asked, any_remote
from dovetail.core.file_formats import files_in, format_of, input_path
from dovetail.errors import InputError
from dovetail.monitoring.formatting import format_bytes

if TYPE_CHECKING:
    from dovetail.condition import Condition

SHARE = 4  # of the free memory, for both inputs as tables
WIDER = {"csv": 4, "json": 2, "arrow": 1, "orc": 8}
"""Typical ratio of table size to file size: digits become eight bytes, ORC is compressed."""
GROUP = Path("/sys/fs/cgroup")
LEAST_BUDGET = 1 << 26  # the smallest recommended budget


class Runtime(NamedTuple):
    in_process: bool
    why: str

    def __str__(self) -> str:
        return f"{'in this process' if self.in_process else 'on Spark'}: {self.why}"


def choose_runtime(
    asked: Asked, condition: Condition | None, in_process: bool | None, *, as_it_comes: bool = False
) -> Runtime:
    """Apply the rule above. `in_process` is the user's choice. `as_it_comes`: rows are joined while they are read."""
    if as_it_comes:
        if in_process is False:
            raise InputError(
                "--spark joins files as a whole: leave out --spark, or --live, --watch, --record, --report and "
                "grpc://… inputs, which are joined in this process as they are read."
            )
        return Runtime(True, "rows are joined as they are read")
    if in_process is not None:
        return Runtime(in_process, "asked for")
    paths = [input_path(place) for place in asked.places if not any_remote(place)]
    if "arrow" in map(format_of, paths):
        return Runtime(True, "Spark does not read Arrow files")
    if condition is not None and calls_spark(condition):
        return Runtime(False, "Spark alone evaluates a function of the condition")
    size, free = sum(map(table_bytes, paths)), free_bytes()
    part = f"as tables, the inputs take about {format_bytes(size)}, and {format_bytes(free)} of memory are free"
    if size * SHARE <= free:
        return Runtime(True, part)
    if find_spec("pyspark") is None:
        budget = format_bytes(max(free // SHARE, LEAST_BUDGET)).replace(" ", "")
        raise InputError(
            f"{part}: more than a quarter of it, which would be a join on Spark, and PySpark is not installed. "
            f"{INSTALL_SPARK}, or add --in-process --memory {budget}, which joins within that."
        )
    return Runtime(False, f"{part}, of which a quarter is enough; --in-process joins here")


def calls_spark(condition: Condition) -> bool:
    """Whether it calls a function that only Spark can evaluate."""
    from dovetail.condition import is_opaque

    return any(map(is_opaque, (*condition.conjuncts, *condition.filters[0], *condition.filters[1])))


def table_bytes(path: Path) -> int:
    """Approximate size of a file or directory as a table. For Parquet only the footers are read."""
    name = format_of(path)
    if name != "parquet":
        return WIDER[name] * sum(file.stat().st_size for file in files_in(path))
    from dovetail.sources.parquet_files import parquet_source

    source = parquet_source(path)
    return 0 if source is None else source.total_bytes()


def free_bytes() -> int:
    """The memory that this process may still use: of the machine, and within the limit of its container."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    with suppress(OSError, ValueError):  # "max": no limit
        limit, taken = ((GROUP / name).read_text() for name in ("memory.max", "memory.current"))
        free = min(free, max(0, int(limit) - int(taken)))
    return free
