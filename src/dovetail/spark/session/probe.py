"""Collects facts about a Spark cluster for `dovetail doctor`, in a separate process that can be killed if it hangs.

stdin    {"master": ..., "state_dir": ..., "conf": {...}}
stdout   a line of JSON for each fact, as soon as it is known, so that facts survive a timeout

session  version, shuffle partitions      tasks    one per core
workers  Python, packages, disk, clock    caches   of kernels
shared   whether tasks share a directory  error    why it stopped
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError, WorkerError
from dovetail.spark.worker_python import ask_workers, check_worker, prepare_workers

MOST_TASKS = 1000  # at most, to query workers
LOCAL = re.compile(r"local(\[.*\])?")
PARTITIONS = "spark.sql.shuffle.partitions"


def main() -> None:
    asked = json.load(sys.stdin)
    try:
        for name, fact in probe(asked["master"], asked["state_dir"], asked["conf"]):
            _tell(name, fact)
    except Exception as error:  # the parent process shows it
        _tell("error", _first_line(error))


def probe(master: str, state_dir: str | None, conf: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Facts about a cluster, one after the other."""
    from pyspark.sql import functions as F

    from dovetail.spark.session.task_calls import CORES

    spark = _start(master, conf)
    try:
        yield "session", {"version": spark.version, "partitions": spark.conf.get(PARTITIONS)}
        spark.range(1).count()  # waits for a first executor
        tasks = spark.range(0, CORES).select(F.spark_partition_id()).distinct().count()
        yield "tasks", tasks
        try:
            if LOCAL.fullmatch(master):
                prepare_workers(spark)  # determines their Python
            workers = ask_workers(spark, min(tasks, MOST_TASKS))
            began = time.time()
            again = ask_workers(spark, min(tasks, MOST_TASKS))  # again after they have started, to compare clocks
        except WorkerError as error:
            yield "worker_error", str(error)
            return
        yield "workers", workers
        yield "clocks", {"began": began, "ended": time.time(), "workers": [[w["host"], w["clock"]] for w in again]}
        if all(_runs_our_tasks(worker) for worker in workers):
            yield "caches", _ask_caches(spark, min(tasks, MOST_TASKS))
            if state_dir is not None:
                yield "shared", _try_shared(spark, state_dir)
    finally:
        spark.stop()


def _start(master: str, conf: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    from dovetail.spark.session.java import ensure_java
    from dovetail.spark.session.session import local_session

    if LOCAL.fullmatch(master):
        return local_session("dovetail doctor", master, dict(conf))
    builder = SparkSession.builder.appName("dovetail doctor")
    if master.startswith("sc://"):
        builder = builder.remote(master)
    else:
        ensure_java()
        builder = builder.master(master)
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _runs_our_tasks(worker: dict[str, Any]) -> bool:
    try:
        check_worker(worker)
    except WorkerError:
        return False
    return True


def _ask_caches(spark: Any, tasks: int) -> list[Any]:
    """The kernel caches of workers, without duplicates."""
    from pyspark.sql import functions as F

    tell = F.udf(_describe_cache, "string", useArrow=False)
    found = {row[0] for row in spark.range(0, tasks, 1, tasks).select(tell("id")).collect()}
    return [json.loads(text) for text in sorted(found)]


def _describe_cache(number: int) -> str:
    import platform

    from dovetail.kernels.compiling import inspect_cache

    return json.dumps({"host": platform.node(), **inspect_cache()._asdict()})


def _try_shared(spark: Any, state_dir: str) -> dict[str, Any]:
    """Whether files that one task writes there can be read by the others, as streaming joins require."""
    from dovetail.spark.session.shared_directory import ADVICE, working_directory

    try:
        shared = working_directory(spark, state_dir, ADVICE.format("Give --state-dir"))
    except DovetailError as error:
        return {"error": str(error)}
    path = shared.place.path  # None: an object store, whose free space is unknown
    free = None if path is None else shared.run(partial(_free, path))
    return {"path": str(shared.place), "seen": shared.is_seen, "free_bytes": free}


def _free(path: Path) -> int:
    return shutil.disk_usage(path).free


def _first_line(error: Exception) -> str:
    """The error without the stack trace. For Java, the line that names the exception."""
    java = re.search(r"^: (.+)$", str(error), re.MULTILINE)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return java[1] if java else lines[0] if lines else type(error).__name__


def _tell(name: str, fact: Any) -> None:
    sys.stdout.write(json.dumps({name: fact}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
