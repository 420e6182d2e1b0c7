"""A Spark Connect server with Dovetail enabled in all sessions: `python -m dovetail.spark.connect_server`.

    python -m dovetail.spark.connect_server --conf spark.master=local[2] --conf spark.connect.grpc.binding.port=15002

It plans joins in SQL and `df.join` from clients in any language, and from Declarative Pipelines. Clients do not need
Dovetail. `SET spark.dovetail.enabled=false` disables it in a session.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading

from pyspark.sql import SparkSession

from dovetail.spark.catalyst.enabling import enable_new_sessions

PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
PORT = "spark.connect.grpc.binding.port"


def start_server(settings: dict[str, str]) -> SparkSession:
    """The classic session in which the server runs."""
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        os.environ.pop(name, None)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("Spark Connect server with Dovetail").config("spark.api.mode", "classic")
    given = settings.get("spark.plugins")
    settings = {**settings, "spark.plugins": f"{given},{PLUGIN}" if given else PLUGIN}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    enable_new_sessions(spark)
    return spark


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m dovetail.spark.connect_server", description=__doc__)
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    given = parser.parse_args(arguments)
    settings = dict(one.split("=", 1) for one in given.conf)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    spark = start_server(settings)
    for number in (signal.SIGTERM, signal.SIGINT):  # Spark has its own handler for the latter
        signal.signal(number, lambda *_: ended.set())
    port = spark.conf.get(PORT, "15002")
    print(f"Spark Connect's server listens on port {port}, with Dovetail in its sessions", flush=True)  # noqa: T201
    ended.wait()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
