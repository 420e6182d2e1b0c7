"""The process from which workers are forked, and where modules are imported."""

import os
import subprocess
import sys

FORKED = "from dovetail.spark.session import daemon; daemon.preload(); print(daemon.threads())"
BESIDE_THE_DRIVER = (
    "import sys, dovetail.spark.streaming.processor; print(sorted({'numba', 'pandas', 'sqlglot'} & sys.modules.keys()))"
)


def said(script: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as set by Spark
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


def test_it_has_one_thread_when_workers_are_forked() -> None:
    assert said(FORKED) == "1"


def test_the_start_of_a_stream_imports_no_join() -> None:
    assert said(BESIDE_THE_DRIVER) == "[]"
