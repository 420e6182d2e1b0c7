"""Runs an unchanged program with Dovetail enabled in all of its Spark sessions: `python -m dovetail.spark.run`.

    python -m dovetail.spark.run job.py --its arguments
    spark-submit --conf spark.pyspark.driver.python=dovetail-python job.py --its arguments

`spark.dovetail.enabled=false` in the session's settings disables it. Workers are not affected.
"""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dovetail.spark.catalyst.enabling import enable
from dovetail.spark.catalyst.replacing import ENABLED

USAGE = "usage: python -m dovetail.spark.run (<program>.py | -m <module>) [arguments …]"


def enable_sessions() -> None:
    """Enable every classic session when it is started or requested from now on."""
    builder: Any = SparkSession.Builder
    start = builder.getOrCreate
    if getattr(start, "enables", False):
        return

    def start_enabled(self: Any) -> Any:
        session = start(self)
        _enable(session)
        return session

    start_enabled.enables = True  # type: ignore[attr-defined]
    builder.getOrCreate = start_enabled


def _enable(session: SparkSession) -> None:
    try:
        if str(session.conf.get(ENABLED, "true")).strip().lower() != "false":
            enable(session)
    except Exception as error:  # the program must not fail because of us
        warnings.warn(f"this session goes on without Dovetail: {error}", RuntimeWarning, stacklevel=3)


def main(arguments: list[str]) -> None:
    """Run the program with its own arguments and directory, as if Python had been called with it."""
    module = arguments[:1] == ["-m"]
    rest = arguments[1:] if module else arguments
    if not rest or rest[0] in ("-h", "--help"):
        sys.exit(USAGE)
    enable_sessions()
    sys.argv = rest
    if module:
        sys.path[0] = ""
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(rest[0]).resolve().parent)
        runpy.run_path(rest[0], run_name="__main__")


def run() -> None:
    """The command `dovetail-python`."""
    main(sys.argv[1:])


if __name__ == "__main__":
    run()
