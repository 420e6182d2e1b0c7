"""Plain Spark SQL with and without `dovetail.enable`: CPU of range joins, the break-even point, the cost of planning.

    python -m benchmarks.plain_sql threshold 5000 20000 60000   # nested loop against Dovetail, by rows per side
    python -m benchmarks.plain_sql queries 100000               # six typical queries
    python -m benchmarks.plain_sql tpch 0.01                    # 22 queries: rows, plans, time to plan
    python -m benchmarks.plain_sql joins 3000                   # the same for 30 queries like those of TPC-DS

CPU includes all child processes. Queries run once as a warm-up before they are measured, except large nested loops.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import dovetail
from benchmarks.join_queries import QUERIES as JOINS
from benchmarks.join_queries import TABLES
from benchmarks.tpch_queries import QUERIES as TPCH
from dovetail.core.directories import private_directory
from dovetail.spark.session import local_session

EVER = "0"
NEVER = "1e300"
LEAST = "spark.dovetail.leastPairs"

SIX = {
    "BETWEEN": "SELECT p.id, b.band FROM points p JOIN bands b ON p.x BETWEEN b.lo AND b.hi",
    "overlap": "SELECT a.band, b.band AS other FROM bands a JOIN bands2 b ON a.lo < b.hi AND b.lo < a.hi",
    "point in time": "SELECT p.id, v.rate FROM points p JOIN rates v ON p.at >= v.since AND p.at < v.until",
    "NOT EXISTS": "SELECT p.id FROM points p WHERE NOT EXISTS (SELECT 1 FROM bands WHERE p.x BETWEEN lo AND hi)",
    "left": "SELECT p.id, b.band FROM points p LEFT JOIN bands b ON p.x > b.lo AND p.x < b.hi",
    "self-join": "SELECT a.id, b.id FROM points a JOIN points b ON b.x > a.x AND b.x < a.x + 20 AND a.at > b.at",
}


def session() -> SparkSession:
    return local_session("plain sql")


# CPU of processes.


def cpu_seconds() -> float:
    """CPU seconds used by this process and by its descendants that are still running."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    own, size = {os.getpid()}, 0
    while size < len(own):
        size = len(own)
        own |= {child for child, parent in parents.items() if parent in own}
    return sum(spent.get(process, 0) for process in own)


def cpu_of(run: Callable[[], object]) -> float:
    before = cpu_seconds()
    run()
    return cpu_seconds() - before


def drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


@contextmanager
def least_pairs(spark: SparkSession, pairs: str) -> Iterator[None]:
    """Set whether Dovetail runs joins: EVER or NEVER."""
    spark.conf.set(LEAST, pairs)
    try:
        yield
    finally:
        spark.conf.unset(LEAST)


def make_tables(spark: SparkSession, rows: int, place: Path) -> None:
    """Points, bands and rates, with columns that no query reads."""
    rng = np.random.default_rng(0)
    span = 10 * rows  # for one point in ten; a point is in about two bands
    lo = rng.integers(0, span, rows)
    start = np.datetime64("2024-01-01", "us")
    since = np.sort(rng.integers(0, 30 * rows, rows))
    wide = {f"unused_{i}": rng.random(rows) for i in range(8)}
    tables: dict[str, dict[str, Any]] = {
        "points": {
            "id": np.arange(rows),
            "x": rng.integers(0, span, rows),
            "at": start + rng.integers(0, 30 * rows, rows) * np.timedelta64(1, "s"),
        },
        "bands": {"band": np.arange(rows), "lo": lo, "hi": lo + 20},
        "bands2": {"band": np.arange(rows), "lo": lo + 7, "hi": lo + 19},
        "rates": {
            "rate": rng.random(rows),
            "since": start + since * np.timedelta64(1, "s"),
            "until": start + np.append(since[1:], 30 * rows) * np.timedelta64(1, "s"),
        },
    }
    for name, columns in tables.items():
        path = place / f"{name}.parquet"
        pq.write_table(pa.table({**columns, **wide}), path)
        spark.read.parquet(str(path)).createOrReplaceTempView(name)


# The break-even point.


def threshold(sizes: list[int]) -> None:
    spark = session()
    print("rows of either side | pairs | CPU s, Spark | CPU s, Dovetail | Spark / Dovetail")
    with tempfile.TemporaryDirectory() as place, dovetail.enable(spark):
        for rows in sizes:
            make_tables(spark, rows, Path(place))
            found = {}
            for pairs in (NEVER, EVER):
                with least_pairs(spark, pairs):
                    drain(spark.sql(SIX["BETWEEN"]))
                    again = 3 if rows <= 30_000 else 1
                    found[pairs] = min(cpu_of(lambda: drain(spark.sql(SIX["BETWEEN"]))) for _ in range(again))
            ratio = found[NEVER] / found[EVER]
            print(f"{rows:,} | {rows**2:.1e} | {found[NEVER]:.1f} | {found[EVER]:.1f} | {ratio:.2f}", flush=True)


# Six queries.


def queries(rows: int) -> None:
    """Run the six queries; results are hashed on the workers. Nested loops over many pairs are not warmed up."""
    spark = session()
    print("query | rows | CPU s, Spark | CPU s, Dovetail | Spark / Dovetail | bytes read, Spark | bytes read, Dovetail")
    with tempfile.TemporaryDirectory() as place, dovetail.enable(spark):
        make_tables(spark, rows, Path(place))
        for name, query in SIX.items():
            hashed = f"SELECT count(*), sum(CAST(xxhash64(*) AS DECIMAL(38, 0))) FROM ({query})"
            spent, found, read = {}, {}, {}
            for pairs in (EVER, NEVER):
                with least_pairs(spark, pairs):
                    if pairs == EVER or rows <= 30_000:
                        spark.sql(hashed).collect()
                    before, start = bytes_read(spark), cpu_seconds()
                    found[pairs] = spark.sql(hashed).collect()[0]
                    spent[pairs], read[pairs] = cpu_seconds() - start, bytes_read(spark) - before
            assert found[EVER] == found[NEVER], name
            cpu = f"{spent[NEVER]:.1f} | {spent[EVER]:.1f} | {spent[NEVER] / spent[EVER]:.1f}"
            print(f"{name} | {found[EVER][0]:,} | {cpu} | {read[NEVER]:,} | {read[EVER]:,}", flush=True)


def bytes_read(spark: SparkSession) -> int:
    """Bytes read by all tasks so far."""
    store = spark.sparkContext._jsc.sc().statusStore()
    nothing = spark.sparkContext._gateway.new_array(spark._jvm.double, 0)  # type: ignore[union-attr]
    stages = store.stageList(None, False, False, nothing, None)
    return sum(int(stages.apply(place).inputBytes()) for place in range(stages.size()))


# Typical queries, most of whose joins are left to Spark.


def tpch(scale: float) -> None:
    spark = session()
    place = private_directory(Path(tempfile.gettempdir()) / f"dovetail-tpch-all-{scale:g}-{os.geteuid()}")
    if not (place / "lineitem.parquet").exists():
        generator = Path(sys.executable).parent / "tpchgen-cli"
        command = [str(generator), "parquet", "--scale-factor", f"{scale:g}", "--output-dir", str(place)]
        subprocess.run(command, check=True, capture_output=True)
    for file in place.glob("*.parquet"):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    compare(spark, TPCH)


def joins(rows: int) -> None:
    spark = session()
    with tempfile.TemporaryDirectory() as place:
        for name, query in TABLES.items():
            spark.sql(query.format(rows=rows)).write.parquet(f"{place}/{name}")
            spark.read.parquet(f"{place}/{name}").createOrReplaceTempView(name)
        compare(spark, JOINS)


def compare(spark: SparkSession, asked: dict[str, str]) -> None:
    """Compare results without Dovetail, with it, and with it running joins of any size."""
    differing, changed, taken, planning = [], [], [], []
    for name, query in asked.items():
        expected, plan = rows_and_plan(spark, query)
        with dovetail.enable(spark):
            found = rows_and_plan(spark, query)
            with least_pairs(spark, EVER):
                forced = rows_and_plan(spark, query)
        if "DovetailJoin" in forced[1]:
            taken.append(name)
        if found[0] != expected or forced[0] != expected:
            differing.append(name)
        if any(one != plan and "DovetailJoin" not in one for one in (found[1], forced[1])):
            changed.append(name)
        if "DovetailJoin" not in found[1]:
            planning.append(added_milliseconds(spark, query))
        print(f"{name}: {len(expected)} rows, taken: {forced[1].count('DovetailJoin')}", flush=True)
    print(f"{len(asked)} queries; Dovetail can take joins of {len(taken)}: {', '.join(taken)}")
    print(f"other rows: {differing or 'none'}; other plans, where no join is taken: {changed or 'none'}")
    print(
        f"time to plan without a candidate: {statistics.median(planning):+.1f} ms (median), {max(planning):+.1f} (most)"
    )


def rows_and_plan(spark: SparkSession, query: str) -> tuple[list[str], str]:
    frame = spark.sql(query)
    plan = without_ids(frame._jdf.queryExecution().sparkPlan().toString())
    return sorted(repr([f"{v:.6g}" if isinstance(v, float) else v for v in row]) for row in frame.collect()), plan


def added_milliseconds(spark: SparkSession, query: str) -> float:
    """CPU of the planning thread with Dovetail minus without it: medians of 9 runs, taken in turn."""
    spent: dict[bool, list[float]] = {False: [], True: []}
    clock = spark._jvm.java.lang.management.ManagementFactory.getThreadMXBean()  # type: ignore[union-attr]
    for _ in range(9):
        for on in spent:
            (dovetail.enable if on else dovetail.disable)(spark)
            execution = spark.sql(query)._jdf.queryExecution()
            execution.optimizedPlan()
            start = clock.getCurrentThreadCpuTime()
            execution.sparkPlan()
            spent[on].append(1e-6 * (clock.getCurrentThreadCpuTime() - start))
    dovetail.disable(spark)
    return statistics.median(spent[True]) - statistics.median(spent[False])


def without_ids(plan: str) -> str:
    return re.sub(r"#\d+L?|(?<=_common_expr_)\d+|plan_id=\d+|\[id=#\d+\]", "", plan)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plain_sql", description=__doc__)
    parser.add_argument("what", choices=["threshold", "queries", "tpch", "joins"])
    parser.add_argument("sizes", nargs="+", type=float)
    given = parser.parse_args()
    if given.what == "threshold":
        threshold([int(size) for size in given.sizes])
    elif given.what == "queries":
        queries(int(given.sizes[0]))
    elif given.what == "joins":
        joins(int(given.sizes[0]))
    else:
        tpch(given.sizes[0])


if __name__ == "__main__":
    main()
