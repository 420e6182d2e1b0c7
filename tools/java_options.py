"""Options of Java for tests, which start it often: a start of Spark takes 7 s of CPU time instead of 14.

Tests are short: the second compiler and the parallel collector cost more than they save, and so does verifying Spark's
classes, which are unmodified. Parsed classes are kept in an archive, which other JVMs map.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

COMMON = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
OF_SPARK = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"  # a JVM that cannot use the archive goes on without it
QUERY = """
from dovetail.spark.session.session import local_session
spark = local_session()
spark.range(100).selectExpr("id % 7 AS k").groupBy("k").count().collect()
java = spark.sparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait()  # it writes the archive when it ends
"""


def set_options() -> None:
    """For all JVMs that this process starts, and its children. Options that are set already are kept."""
    os.environ.setdefault("JAVA_TOOL_OPTIONS", COMMON)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", OF_SPARK)


def archive_classes(directory: Path) -> None:
    """Let later JVMs map the classes that Spark loads for a query. Made once per installation of Spark."""
    set_options()
    jars = Path(sysconfig.get_path("purelib"), "pyspark", "jars")
    archive = directory / f"spark-{jars.stat().st_mtime_ns}.jsa"
    before = os.environ["SPARK_SUBMIT_OPTS"]
    if not archive.exists():
        directory.mkdir(parents=True, exist_ok=True)
        options = f"{before} -XX:ArchiveClassesAtExit={archive} {QUIET}"
        subprocess.run(
            [sys.executable, "-c", QUERY],
            env={**os.environ, "SPARK_SUBMIT_OPTS": options},
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    if archive.exists():
        os.environ["SPARK_SUBMIT_OPTS"] = f"{before} -XX:SharedArchiveFile={archive} {QUIET}"
