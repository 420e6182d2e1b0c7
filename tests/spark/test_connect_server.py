"""A Spark Connect server with Dovetail in its sessions: clients and pipelines use it without changes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from dovetail.spark.session.java import ensure_java
from dovetail.spark.session.session import DAEMON

pytestmark = [pytest.mark.spark, pytest.mark.slow]  # two processes with their own JVMs

CLIENT = Path(__file__).with_name("connect_client_job.py")


def test_clients_and_a_pipeline(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.port": str(port),
        "spark.dovetail.leastPairs": "0",
        "spark.python.daemon.module": DAEMON,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.ui.enabled": "false",
    }
    given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [sys.executable, "-m", "dovetail.spark.connect_server", *given]
    environment = {**os.environ, "JAVA_HOME": str(ensure_java()), "PYSPARK_PYTHON": sys.executable}
    with (tmp_path / "server.log").open("w+") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert server.stdout is not None
            lines = iter(server.stdout.readline, "")
            assert any("with Dovetail in its sessions" in line for line in lines), log.seek(0) or log.read()
            client = [sys.executable, str(CLIENT), f"sc://127.0.0.1:{port}", str(tmp_path)]
            run = subprocess.run(client, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
            log.seek(0)
            assert run.returncode == 0, f"{run.stdout}\n{run.stderr[-4000:]}\n{log.read()[-4000:]}"
        finally:
            server.terminate()
            server.wait(PATIENCE_S)
