"""Spark whose workers, or whose Connect server, behave as if on other machines.

Each process has its own mount namespace, in which two directories differ from those of this process:

    own        empty, and not visible to the others, like the local disk of a machine
    workers    shared by these processes, but not with this one; here its files are in `behind`
    shared     the same for all processes
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from dovetail.spark.session.java import ensure_java

HOST = "127.0.0.1"
HOME = Path(pyspark.__file__).parent
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
MOUNT = 'mount -t tmpfs tmpfs "$0/own" && mount --bind "$0/behind" "$0/workers" && exec "$@"'
STARTED_S = 120


def why_not() -> str | None:
    """The reason why processes cannot have separate disks here; None if they can."""
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        run = subprocess.run(probe, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no program called unshare"
    return f"unshare --mount is not permitted: {run.stderr.strip()}" if run.returncode else None


@contextmanager
def cluster(place: Path, workers: int = 2) -> Iterator[str]:
    """A master and workers with one core each; yields the master's address."""
    port = _free_port()
    address = f"spark://{HOST}:{port}"
    spark_class = str(HOME / "bin" / "spark-class")
    flags = ["--host", HOST, "--webui-port", "0"]
    started = [_start(place, [spark_class, MASTER, *flags, "--port", str(port)])]
    try:
        _wait_for(port, started[0])
        for number in range(workers):
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(place / f"worker-{number}")]
            started.append(_start(place, [spark_class, WORKER, *flags, *work, address]))
        yield address
    finally:
        _stop(started)


@contextmanager
def connect_server(place: Path) -> Iterator[str]:
    """A Connect server; yields its address."""
    port = _free_port()
    settings = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
    }
    flags = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    submit = [str(HOME / "bin" / "spark-submit"), "--master", "local[2]", "--class", SERVER, *flags, "spark-internal"]
    server = _start(place, submit)
    try:
        _wait_for(port, server)
        yield f"sc://{HOST}:{port}"
    finally:
        _stop([server])


def _start(place: Path, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process with its own mounts and temporary directory."""
    for name in ("own", "workers", "behind", "shared"):
        (place / name).mkdir(exist_ok=True)
    ensure_java()
    environment = {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(place / "own"),
    }
    with open(place / "spark.log", "ab") as log:
        return subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", MOUNT, str(place), *command],
            stdout=log,
            stderr=log,
            env={**os.environ, **environment},
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + STARTED_S
    while True:
        try:
            socket.create_connection((HOST, port), 1).close()
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"nothing listens on port {port}; see spark.log") from error
            time.sleep(0.1)  # poll until it listens: there is no other sign
        else:
            return


def _stop(started: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in reversed(started):
        process.terminate()
    for process in started:
        process.wait()
