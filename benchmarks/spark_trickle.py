"""Two streams that trickle in, on Spark, two cores: joins in a tenth of the memory, and Spark's own stream-stream join.

Files appear one after the other, and both sources pause twice. Spark's join keeps all rows in its state store; ours
have a budget, spill, and work in the background. `python -m benchmarks.spark_trickle` prints how many results each has
found when the last row has been sent, and when it has found all. For pairs whose rows were sent together, and so were
in memory together, it prints the time after which 95 % had been emitted: for all files, and for files sent after the
first micro-batch of the query. Starting a query takes long: with `--up`, all files except the first are sent once it is
up.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

import dovetail
from dovetail.spark.session.session import local_session

FILES, ROWS, GAP_S = 20, 20_000, 0.7
PAUSES = {7: 6.0, 14: 6.0}  # after this file, in seconds
SCHEMA = "id bigint, k bigint, words string, kind string"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
MEMORY = "2MB"  # per cell, with two cells; the rows of both sides take about 45 MB


@dataclass
class Outcome:
    at_the_end_of_sending: int = 0
    results: int = 0
    seconds: float = 0.0
    sending: float = 0.0
    delay: float = 0.0  # for 95 % of the pairs whose rows were sent together
    delay_when_up: float = 0.0  # for those sent after the first micro-batch


class Wait(NamedTuple):
    """The time from sending to output of pairs whose rows were sent together."""

    sent_at: float
    seconds: float
    pairs: int


def write_files(place: Path) -> int:
    """Write the files to send. Returns the number of results."""
    rng = np.random.default_rng(0)
    keys = []
    for side in ("left", "right"):
        (place / side).mkdir()
        whole = rng.integers(0, FILES * ROWS // 2, FILES * ROWS)
        keys.append(whole)
        for number, rows in enumerate(np.split(np.arange(FILES * ROWS), FILES)):
            words = pa.array(["some words that make a row of ordinary size"] * ROWS)
            table = pa.table({"id": rows, "k": whole[rows], "words": words, "kind": ["row"] * ROWS})
            pq.write_table(table, place / side / f"{number:03d}.parquet")
        end = pa.table({"id": [-1], "k": [-1], "words": [""], "kind": ["end"]})
        pq.write_table(end, place / side / f"{FILES:03d}.parquet")
    left, right = (np.bincount(side, minlength=FILES * ROWS) for side in keys)
    return int((left * right).sum())


class Sending(threading.Thread):
    """Makes the files of both sides appear on schedule."""

    def __init__(self, prepared: Path, place: Path, when_up: bool) -> None:
        super().__init__(daemon=True)
        self._prepared, self._place = prepared, place
        self.is_up = threading.Event()  # the query, after its first micro-batch
        if not when_up:
            self.is_up.set()
        self.ended_at: float | None = None
        self.sent_at: list[float] = []  # each pair of files
        for side in ("left", "right"):
            (place / side).mkdir(parents=True)

    def run(self) -> None:
        for number in range(FILES + 1):
            for side in ("left", "right"):
                shutil.copy(self._prepared / side / f"{number:03d}.parquet", self._place / side / f".{number:03d}")
                (self._place / side / f".{number:03d}").rename(self._place / side / f"{number:03d}.parquet")
            self.sent_at.append(time.perf_counter())
            self.is_up.wait()
            if number < FILES - 1:
                time.sleep(GAP_S + PAUSES.get(number, 0.0))
        self.ended_at = time.perf_counter()


def streams(spark: SparkSession, place: Path) -> tuple[DataFrame, DataFrame]:
    left, right = (spark.readStream.schema(SCHEMA).parquet(str(place / side)) for side in ("left", "right"))
    return left, right


def by_dovetail(spark: SparkSession, place: Path, algorithm: str) -> DataFrame:
    options: dict[str, Any] = {"end": "kind = 'end'", "memory": MEMORY, "cells": 2, "state_dir": str(place / "state")}
    joined: DataFrame = dovetail.join(*streams(spark, place), "l.k = r.k", algorithm=algorithm, **options)
    return joined


def by_spark(spark: SparkSession, place: Path) -> DataFrame:
    left, right = streams(spark, place)
    right = right.toDF("id_right", "k_right", "words_right", "kind_right").where("kind_right = 'row'")
    return left.where("kind = 'row'").join(right, F.expr("k = k_right"))


def run(spark: SparkSession, prepared: Path, name: str, expected: int, when_up: bool) -> Outcome:
    place = Path(tempfile.mkdtemp(prefix="dovetail-trickle-"))
    outcome = Outcome()
    try:
        sending = Sending(prepared, place, when_up)
        joined = by_spark(spark, place) if name == "spark" else by_dovetail(spark, place, name)
        found = [0]
        waits: list[Wait] = []
        ends: list[float] = []  # ends of micro-batches
        together = [F.count_if(F.expr(f"id div {ROWS} = {n} AND id_right div {ROWS} = {n}")) for n in range(FILES)]

        def count(batch: DataFrame, number: int) -> None:
            every, *pairs = batch.agg(F.count("*"), *together).collect()[0]
            found[0] += every
            now = time.perf_counter()
            ends.append(now)
            sending.is_up.set()
            waits.extend(Wait(sent, now - sent, n) for sent, n in zip(sending.sent_at, pairs, strict=False) if n)

        writer = joined.writeStream.foreachBatch(count).option("checkpointLocation", str(place / "checkpoint"))
        started = time.perf_counter()
        query = writer.start()
        sending.start()
        while found[0] < expected and query.isActive:
            if sending.ended_at is not None and not outcome.sending:
                outcome.sending, outcome.at_the_end_of_sending = sending.ended_at - started, found[0]
            time.sleep(0.05)
        outcome.seconds, outcome.results = time.perf_counter() - started, found[0]
        query.stop()
        outcome.delay = delay_of_most(waits)
        outcome.delay_when_up = delay_of_most([wait for wait in waits if wait.sent_at > ends[0]])
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return outcome


def delay_of_most(waits: list[Wait]) -> float:
    waits = sorted(waits, key=lambda wait: wait.seconds)
    pairs = np.cumsum([wait.pairs for wait in waits])
    return waits[int(np.searchsorted(pairs, 0.95 * pairs[-1]))].seconds


def main(arguments: list[str]) -> None:
    names = [argument for argument in arguments if argument != "--up"]
    prepared = Path(tempfile.mkdtemp(prefix="dovetail-trickle-files-"))
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.stateStore.providerClass": ROCKSDB}
    spark = local_session("trickle", conf=conf)
    table = Table(
        "join", "sent after", "results then", "of all", "95 % sent together", "when up", "all after", box=None
    )
    try:
        expected = write_files(prepared)
        for name in names or ["spark", "auto", "diner", "xjoin"]:
            seen = run(spark, prepared, name, expected, when_up=names != arguments)
            if seen.results != expected:
                raise AssertionError(f"{name}: {seen.results} results, {expected} expected")
            share = f"{seen.at_the_end_of_sending / expected:.1%}"
            then = f"{seen.at_the_end_of_sending:,}"
            delays = [f"within {delay:.1f} s" for delay in (seen.delay, seen.delay_when_up)]
            table.add_row(name, f"{seen.sending:.1f} s", then, share, *delays, f"{seen.seconds:.1f} s")
    finally:
        shutil.rmtree(prepared, ignore_errors=True)
        spark.stop()
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
