"""A local Spark session with little output, for the demo, the command line, tests and first steps."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from dovetail.core.owned_directories import temporary_directory
from dovetail.spark.session.java import ensure_java
from dovetail.spark.sources import register

LOOPBACK = "127.0.0.1"
DAEMON = "dovetail.spark.session.daemon"  # workers are forked from it
LINES = 20  # of Java's output, if it did not start
LOGGING = Path(__file__).with_name("log4j2.properties")

SETTINGS = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": DAEMON,
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}

BRIEF = {
    # The second compiler and the parallel collector cost more than they save within a minute.
    "spark.driver.extraJavaOptions": f"{SETTINGS['spark.driver.extraJavaOptions']} "
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Settings for short-lived sessions."""


def local_session(app: str = "dovetail", master: str = "local[2]", conf: dict[str, str] | None = None) -> SparkSession:
    """The active session, unchanged, or a new one in this process, with our sources registered.

    `conf` adds to SETTINGS.
    """
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        pass
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers need the packages of this process
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # else Spark looks up the host name, which may not resolve
    settings = SETTINGS | (conf or {})
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    threading.Thread(target=_prepare_ahead, name="dovetail-ahead", daemon=True).start()
    with _chatter_to_a_file():
        return register(builder.getOrCreate())


def _prepare_ahead() -> None:
    """Import what joins need and set the compiler up while Java starts.

    By name, since a session does not import the joins above it. Errors are ignored here, and raised where the import is
    needed.
    """
    with suppress(Exception):
        rows = pa.record_batch({"k": [1]})
        import_module("dovetail.api").count(rows, rows, "l.k = r.k")


@contextmanager
def session_for_now(app: str = "dovetail") -> Iterator[SparkSession]:
    """The active session, which is kept; or a new one, which is stopped at the end."""
    is_borrowed = SparkSession.getActiveSession() is not None
    session = local_session(app)
    try:
        yield session
    finally:
        if not is_borrowed:
            session.stop()


@contextmanager
def _chatter_to_a_file() -> Iterator[None]:
    """Redirect standard error of a JVM that is started here to a file, which is removed when this process ends.

    Spark's streaming workers write there at every start. Errors that matter are raised as exceptions. If Java does not
    start, its output is added to the exception.
    """
    path = _log_file()
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    own = os.dup(2)
    try:
        os.dup2(log, 2)
        yield
    except Exception as error:
        written = path.read_text(errors="replace").strip().splitlines()[-LINES:]
        if written:
            error.add_note("\n".join(["Java wrote:", *written]))
        raise
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(log)


@cache
def _log_file() -> Path:
    """One file for all sessions of this process, since they share one JVM."""
    return temporary_directory() / "spark.log"
