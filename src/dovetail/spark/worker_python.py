"""Determines which Python the workers run, and whether our tasks can run there.

Spark starts workers with PYSPARK_PYTHON, or with the `python3` on their PATH. That may differ from the Python of this
process. If it has no dovetail, the first task would fail with a long Java stack trace.

on this machine                workers run the Python of this process, unless another one is set that can run our tasks
on a cluster, or by Connect    once per session, a task that needs only Python checks what a worker has
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dovetail.errors import WorkerError

log = logging.getLogger("dovetail.spark")

VARIABLE = "PYSPARK_PYTHON"
OVERRIDE = "spark.sql.execution.pyspark.python"  # overrides the Python that functions carry
SETTINGS = (OVERRIDE, "spark.pyspark.python")
CHECKED = "spark.dovetail.checkedWorkers"  # stored in the session, which may have several Python objects
NEEDED = ("dovetail", "numba", "pandas", "pyarrow")
VERSIONS = re.compile(r"Python in worker has different version: (\S+) than that in driver: ([\d.]+)")
REMEDY = (
    f"Install the same version of dovetail there, or start the session with {VARIABLE} set to a Python that has it; "
    f"this process runs {sys.executable}."
)


def prepare_workers(spark: SparkSession) -> None:
    """Make sure that workers can run our tasks. Raises WorkerError if they cannot."""
    is_here = _is_here(spark)
    if is_here and _configured_python(spark) in (None, sys.executable):
        _run_own_python(spark)
    elif spark.conf.get(CHECKED, None) is None:
        try:
            check_worker(ask_workers(spark)[0])
        except WorkerError as error:
            if not is_here or spark.conf.get(OVERRIDE, None) is not None:
                raise
            log.warning("%s Since workers are on this machine, they run it, too.", error)
            _run_own_python(spark)
        spark.conf.set(CHECKED, "true")


def _run_own_python(spark: SparkSession) -> None:
    """Make workers run the Python of this process.

    Functions carry it from the time they are created. The session's setting would not apply to functions that run in
    the driver: Python data sources, and what a stateful operator does before its first task.
    """
    spark.sparkContext.pythonExec = sys.executable


def check_worker(found: dict[str, Any]) -> None:
    """Raise WorkerError if a worker with these facts cannot run our tasks."""
    workers = f"the workers of this Spark session run {found['python']} ({found['version']})"
    missing = [name for name in NEEDED if name not in found["modules"]]
    if missing:
        raise WorkerError(f"{workers}, where {', '.join(missing)} cannot be imported. {REMEDY}")
    here, there = json.loads(_teller()(["dovetail"]))["modules"]["dovetail"], found["modules"]["dovetail"]
    if here != there:
        raise WorkerError(f"{workers}, where dovetail is {there}; here it is {here}. {REMEDY}")


def _is_here(spark: SparkSession) -> bool:
    """Whether this process decides what workers run: they are on this machine, and were started from here."""
    if is_connect(spark):
        return False
    return re.fullmatch(r"local(\[.*\])?", spark.sparkContext.master or "") is not None


def is_connect(spark: SparkSession) -> bool:
    """Whether this process is the client of a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _configured_python(spark: SparkSession) -> str | None:
    """The configured Python."""
    settings = [spark.conf.get(name, None) for name in SETTINGS]
    return next((python for python in (*settings, os.environ.get(VARIABLE)) if python), None)


def ask_workers(spark: SparkSession, tasks: int = 1) -> list[dict[str, Any]]:
    """Facts about workers, one for each task."""
    tell = F.udf(_teller(), "string", useArrow=False)  # without Arrow: pyarrow may be missing
    try:
        told = spark.range(0, tasks, 1, tasks).select(tell(F.array(*map(F.lit, NEEDED)))).collect()
    except (PySparkException, Py4JJavaError) as error:
        if (versions := VERSIONS.search(str(error))) is not None:
            there, here = versions.groups()
            raise WorkerError(
                f"the workers of this Spark session run Python {there}, and this process Python {here}: Spark does not "
                f"support that. Start the session with {VARIABLE} set to a Python {here} that has dovetail; this "
                f"process runs {sys.executable}."
            ) from error
        raise WorkerError(f"Python workers of this Spark session do not start: {_reason(error)}. {REMEDY}") from error
    return [json.loads(row[0]) for row in told]


def _teller() -> Callable[[list[str]], str]:
    """The function that a worker runs. It must not need dovetail. As a local function it is pickled by value."""

    def tell(names: list[str]) -> str:
        import importlib
        import json
        import platform
        import shutil
        import sys
        import tempfile
        import time
        from contextlib import suppress

        modules = {}
        for name in names:
            with suppress(Exception):  # a broken package counts as missing
                modules[name] = getattr(importlib.import_module(name), "__version__", None)
        facts = {
            "host": platform.node(),
            "python": sys.executable,
            "version": platform.python_version(),
            "modules": modules,
            "clock": time.time(),
        }
        with suppress(OSError):  # there may be no temporary directory
            facts["temporary"] = tempfile.gettempdir()
            facts["free_bytes"] = shutil.disk_usage(tempfile.gettempdir()).free
        return json.dumps(facts)

    return tell


def _reason(error: Exception) -> str:
    """The reason of a failure, without the stack trace."""
    known = re.search(r"Cannot run program .*", str(error))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (known[0] if known else lines[-1] if lines else type(error).__name__).rstrip(".")
