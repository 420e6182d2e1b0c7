"""Joins that find the best partner of each row, against other systems: CPU time ratios, one thread, whole rows.

    python -m benchmarks.best_partner [--share 0.1] [words of a case's name …]

Every case runs three times on each system, in turn, and medians are compared; a slow rival may run once. `--share` is
the share of all rows to use. Rivals are DuckDB, Polars and SciPy; with a ratio above 1 Dovetail is faster. Windows are
compared with each other, and the widest with DuckDB: it runs on a thousandth of the left rows and on twice as many, and
the added time is extrapolated to all rows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before it is imported

RUNS = 3
WIDEST = 100_000
PART, TWICE = 1000, "DuckDB, twice"
SLOW_S = 20.0  # a rival that takes longer runs once
MICROSECONDS = pa.timestamp("us")

Run = Callable[[], Any]


class Case(NamedTuple):
    name: str
    ours: Run
    rivals: Mapping[str, Run]
    wanted: Mapping[str, float]  # ratios


def _cpu(run: Run) -> float:
    start = time.process_time()
    result = run()
    taken = time.process_time() - start
    del result
    return taken


def measure(case: Case) -> tuple[float, dict[str, float]]:
    """Median CPU seconds: ours, and those of each rival."""
    import dovetail  # noqa: F401  imported before anything is measured

    _cpu(case.ours)  # compiles kernels
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in case.rivals}
    for _ in range(RUNS):
        ours.append(_cpu(case.ours))
        for name, run in case.rivals.items():
            if sum(theirs[name]) < SLOW_S:
                theirs[name].append(_cpu(run))
    return statistics.median(ours), {name: statistics.median(times) for name, times in theirs.items()}


def _duck(query: str, **tables: pa.Table) -> Run:
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute("SET enable_progress_bar = false")
    for name, table in tables.items():
        connection.register("arrow_rows", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM arrow_rows")
    return lambda: connection.sql(query).to_arrow_table()


# As-of joins.


def _ticks(rng: np.random.Generator, rows: int, keys: int, in_order: bool, value: str) -> pa.Table:
    times = rng.integers(0, 10 * rows, rows)
    if in_order:
        times.sort()
    columns: dict[str, Any] = {"t": pa.array(times).cast(MICROSECONDS), value: rng.random(rows)}
    if keys:
        columns["k"] = rng.integers(0, keys, rows)
    return pa.table(columns)


def as_of(share: float) -> Iterator[Case]:
    import polars as pl

    import dovetail

    rows = int(5_000_000 * share)
    for keys in (50, 100_000, 0):
        for in_order in (True, False):
            rng = np.random.default_rng(keys)
            left, right = (_ticks(rng, rows, keys, in_order, value) for value in ("a", "b"))
            by = "k" if keys else None
            frames: list[Any] = [pl.from_arrow(left), pl.from_arrow(right)]

            def polars(frames: list[Any] = frames, by: str | None = by, in_order: bool = in_order) -> Any:
                mine, theirs = frames if in_order else (frame.sort("t") for frame in frames)
                return mine.join_asof(theirs, on="t", by=by, check_sortedness=False)

            equal = "l.k = r.k AND " if keys else ""
            duck = _duck(f"SELECT * FROM l ASOF LEFT JOIN r ON {equal}l.t >= r.t", l=left, r=right)
            name = f"as-of, {f'{keys:,}' if keys else 'no'} keys, {'sorted' if in_order else 'unsorted'}"
            ours = partial(dovetail.asof, left, right, "t", by=by, threads=1)
            yield Case(name, ours, {"DuckDB": duck, "Polars": polars}, {"DuckDB": 2, "Polars": 1})


# Nearest points and intervals.


def nearest(share: float) -> Iterator[Case]:
    import polars as pl
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]

    import dovetail

    rng = np.random.default_rng(1)
    rows = int(10_000_000 * share)
    left, right = (pa.table({"x": rng.random(rows), value: rng.random(rows)}) for value in ("a", "b"))
    frames: list[Any] = [pl.from_arrow(left), pl.from_arrow(right)]

    def polars() -> Any:
        mine, theirs = (frame.sort("x") for frame in frames)
        return mine.join_asof(theirs, on="x", strategy="nearest")

    ours = partial(dovetail.nearest, left, right, "x", threads=1)
    yield Case("nearest, 1-d", ours, {"Polars": polars}, {"Polars": 1.5})
    rows = int(1_000_000 * share)
    points, others = rng.random((rows, 2)), rng.random((rows, 2))
    tables = [pa.table({"x": p[:, 0], "y": p[:, 1]}) for p in (points, others)]
    for k in (1, 5):

        def scipy(k: int = k) -> Any:
            """Whole rows: each point with its neighbours."""
            near = cKDTree(others).query(points, k=k)[1].ravel()
            return tables[0].take(np.repeat(np.arange(rows), k)), tables[1].take(near)

        ours = partial(dovetail.nearest, tables[0], tables[1], ["x", "y"], k=k, threads=1)
        yield Case(f"nearest, 2-d, k = {k}", ours, {"SciPy": scipy}, {"SciPy": 2})
    starts = [rng.integers(0, 100 * rows, rows) for _ in range(2)]
    spans = [pa.table({"start": s, "end": s + rng.integers(1, 50, rows)}) for s in starts]
    yield Case("nearest, intervals", partial(dovetail.nearest, spans[0], spans[1], ("start", "end"), threads=1), {}, {})


# The best of all partners under two inequalities: 10^9 pairs at full size.


def inequalities(share: float) -> Iterator[Case]:
    import dovetail

    rows = int(1_000_000 * share)
    rng = np.random.default_rng(2)
    first = rng.random(rows)
    left = pa.table({"a": first, "b": first + rng.normal(0, 0.0018, rows)})
    first = rng.random(rows)
    right = pa.table({"a": first, "b": first + rng.normal(0, 0.0018, rows), "v": rng.random(rows)})
    on = "l.a < r.a AND l.b > r.b"
    for order, words in ((None, "any"), ("r.v DESC", "largest value")):
        ours = partial(dovetail.join, left, right, on, "left", top=1, order_by=order, threads=1)
        yield Case(f"top = 1, two inequalities, {words}", ours, {}, {})


# Aggregates over the partners in a window.


def windows(share: float) -> Iterator[Case]:
    import dovetail

    lefts, rights = int(1_000_000 * share), int(10_000_000 * share)
    rng = np.random.default_rng(3)
    left = pa.table({"x": rng.random(lefts)})
    right = pa.table({"x": rng.random(rights), "v": rng.random(rights)})
    aggregates = {"n": "count(*)", "total": "sum(r.v)", "least": "min(r.v)", "most": "max(r.v)"}
    for partners in (10, 1_000, WIDEST):
        reach = partners / rights / 2
        on = f"r.x BETWEEN l.x - {reach!r} AND l.x + {reach!r}"
        rivals = {}
        if partners == WIDEST:
            columns = "count(r.v), coalesce(sum(r.v), 0), min(r.v), max(r.v)"
            query = f"SELECT l.x, {columns} FROM l LEFT JOIN r ON {on} GROUP BY l.x"
            few = max(1, lefts // PART)
            rivals = {name: _duck(query, l=left.slice(0, n * few), r=right) for name, n in (("DuckDB", 1), (TWICE, 2))}
        ours = partial(dovetail.aggregate, left, right, on, aggregates, "left", threads=1)
        yield Case(f"window of {partners:,} partners", ours, rivals, {"DuckDB": 10} if rivals else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--share", type=float, default=1.0)
    given = parser.parse_args()
    print(f"{given.share:g} of all rows, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| case | CPU s | ratios | at least |\n|---|---|---|---|")
    for cases in (as_of, nearest, inequalities, windows):
        for case in cases(given.share):
            if not all(word in case.name for word in given.words):
                continue
            ours, theirs = measure(case)
            if TWICE in theirs:
                theirs["DuckDB"] += (theirs.pop(TWICE) - theirs["DuckDB"]) * (PART - 1)
            ratios = {name: taken / ours for name, taken in theirs.items()}
            shown = ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items())
            wanted = ", ".join(f"{name} {ratio:g}" for name, ratio in case.wanted.items())
            print(f"| {case.name} | {ours:.2f} | {shown} | {wanted} |", flush=True)


if __name__ == "__main__":
    main()
