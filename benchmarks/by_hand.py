"""Joins on Spark against the best hand-written query of an expert: bins, an equality on the bin, and a filter.

    python -m benchmarks.by_hand                    # all cases, 1M rows
    python -m benchmarks.by_hand short band --rows 3000000

Each join is run for all its rows (to Spark's noop sink), for a count, and for 2 of its 20 columns. As a warm-up, the
hand-written query runs twice with every bin width, and the join twice; then the best width and the join take turns.
Figures are median CPU seconds of the process tree; with a ratio above 1 Dovetail needs less.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import dovetail
from benchmarks.process_tree import measure
from dovetail.spark.session import local_session

DOMAIN = 2_000_000_000
PAYLOAD = 8  # columns of each side beside its keys
GROUP_ROWS = 250_000


class Bins(NamedTuple):
    """What an expert knows of the data."""

    width: int
    rows: int  # of the larger side


class Case(NamedTuple):
    """A join, its tables, and the hand-written query for given bins."""

    title: str
    tables: Callable[[int, np.random.Generator], tuple[pa.Table, pa.Table]]
    on: str
    by_hand: Callable[[DataFrame, DataFrame, Bins, str], DataFrame]
    widths: tuple[int, ...]  # bin widths to try, for a million rows


def payload(prefix: str, rows: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    return {f"{prefix}{i}": pa.array(rng.integers(0, 1 << 40, rows)) for i in range(PAYLOAD)}


def points(rows: int, rng: np.random.Generator, t: np.ndarray | None = None) -> pa.Table:
    t = rng.integers(0, DOMAIN, rows) if t is None else t
    return pa.table({"t": t, "g": rng.integers(0, 20, rows), **payload("p", rows, rng)})


def intervals(rng: np.random.Generator, start: np.ndarray, length: np.ndarray) -> pa.Table:
    rows = len(start)
    return pa.table({"s": start, "e": start + length, "h": rng.integers(0, 20, rows), **payload("q", rows, rng)})


def short(rows: int, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    n = rows // 10
    return points(rows, rng), intervals(rng, rng.integers(0, DOMAIN, n), rng.integers(1, 120_000_000_000 // rows, n))


def mixed(rows: int, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    n = rows // 10
    length = np.minimum(rng.lognormal(8.5, 2.0, n) * 1e6 / rows, DOMAIN / 10).astype(np.int64) + 1
    length[:20] = DOMAIN // 10
    return points(rows, rng), intervals(rng, rng.integers(0, DOMAIN, n), length)


def skewed(rows: int, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    """Half of both sides in a hundredth of the domain, where intervals are short."""
    n = rows // 10
    t, s = rng.integers(0, DOMAIN, rows), rng.integers(0, DOMAIN, n)
    t[::2] //= 100
    s[::2] //= 100
    length = rng.integers(1, 120_000_000_000 // rows, n)
    length[::2] = length[::2] // 100 + 1
    return points(rows, rng, t), intervals(rng, s, length)


def long(rows: int, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    n = max(1, rows // 1000)
    return points(rows, rng), intervals(rng, rng.integers(0, DOMAIN, n), rng.integers(1, 12_000_000, n))


def skewed_points(rows: int, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    """Half of the points in a ten thousandth of the domain."""
    t = rng.integers(0, DOMAIN, rows)
    t[::2] //= 10_000
    n = rows // 10
    return points(rows, rng, t), intervals(rng, rng.integers(0, DOMAIN, n), rng.integers(1, 120_000_000_000 // rows, n))


def keyed(rows: int, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    """A thousand keys, and intervals a thousand times as long."""
    n, keys = rows // 10, 1000
    left = points(rows, rng)
    length = rng.integers(1, min(DOMAIN // 10, 40_000_000_000_000 // rows), n)
    right = intervals(rng, rng.integers(0, DOMAIN, n), length)
    left = left.set_column(left.column_names.index("g"), "g", pa.array(rng.integers(0, keys, rows)))
    return left, right.set_column(right.column_names.index("h"), "h", pa.array(rng.integers(0, keys, n)))


def overlapping_mixed(rows: int, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    def side() -> pa.Table:
        n = rows // 5
        length = np.minimum(rng.lognormal(7.5, 2.0, n) * 1e6 / rows, DOMAIN / 10).astype(np.int64) + 1
        length[:10] = DOMAIN // 10
        return intervals(rng, rng.integers(0, DOMAIN, n), length)

    left = side()
    return left.rename_columns([f"l{name}" for name in left.column_names]), side()


def overlapping(rows: int, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    n = rows // 5
    length = 20_000_000_000 // rows // 2
    left = intervals(rng, rng.integers(0, DOMAIN, n), rng.integers(1, length, n))
    right = intervals(rng, rng.integers(0, DOMAIN, n), rng.integers(1, length, n))
    return left.rename_columns([f"l{name}" for name in left.column_names]), right


def near(rows: int, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    right = points(rows // 3, rng)
    return points(rows, rng), right.rename_columns([f"r{name}" for name in right.column_names])


def near_in_two(rows: int, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    def side(count: int, prefix: str) -> pa.Table:
        xy = {f"{prefix}x": rng.integers(0, 40_000, count), f"{prefix}y": rng.integers(0, 40_000, count)}
        return pa.table({**xy, **payload(prefix, count, rng)})

    return side(rows, "l"), side(rows // 3, "r")


def noisy(rows: int, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    def side(prefix: str) -> pa.Table:
        x = rng.random(rows // 3)
        y = x + 18 / len(x) * rng.random(len(x))
        return pa.table({f"{prefix}x": x, f"{prefix}y": y, **payload(prefix, len(x), rng)})

    return side("l"), side("r")


def _bin(value: Column, width: int) -> Column:
    return F.call_function("div", value, F.lit(width))


def _bins(low: Column, high: Column, width: int) -> Column:
    return F.explode(F.sequence(_bin(low, width), _bin(high, width)))


def point_by_hand(left: DataFrame, right: DataFrame, bins: Bins, how: str) -> DataFrame:
    points, ranges = (
        left.withColumn("b", _bin(F.col("t"), bins.width)),
        right.withColumn("c", _bins(F.col("s"), F.col("e"), bins.width)),
    )
    return points.join(ranges, F.expr("b = c AND t >= s AND t < e"), how).drop("b", "c")


def equal_point_by_hand(left: DataFrame, right: DataFrame, bins: Bins, how: str) -> DataFrame:
    points, ranges = (
        left.withColumn("b", _bin(F.col("t"), bins.width)),
        right.withColumn("c", _bins(F.col("s"), F.col("e"), bins.width)),
    )
    return points.join(ranges, F.expr("g = h AND b = c AND t >= s AND t < e"), how).drop("b", "c")


def overlap_by_hand(left: DataFrame, right: DataFrame, bins: Bins, how: str) -> DataFrame:
    one = left.withColumn("b", _bins(F.col("ls"), F.col("le"), bins.width))
    other = right.withColumn("c", _bins(F.col("s"), F.col("e"), bins.width))
    first = _bin(F.greatest("ls", "s"), bins.width)  # keep the pair only in the bin where the overlap begins
    return one.join(other, F.expr("b = c AND ls < e AND s < le") & (first == F.col("b")), how).drop("b", "c")


def band_by_hand(left: DataFrame, right: DataFrame, bins: Bins, how: str) -> DataFrame:
    one = left.withColumn("b", _bin(F.col("t"), bins.width))
    other = right.withColumn("c", _bins(F.col("rt") - 1000, F.col("rt") + 1000, bins.width))
    return one.join(other, F.expr("b = c AND abs(t - rt) <= 1000"), how).drop("b", "c")


def two_bands_by_hand(left: DataFrame, right: DataFrame, bins: Bins, how: str) -> DataFrame:
    one = left.withColumn("b", _bin(F.col("lx"), bins.width)).withColumn("d", _bin(F.col("ly"), bins.width))
    other = right.withColumn("c", _bins(F.col("rx") - 50, F.col("rx") + 50, bins.width))
    other = other.withColumn("f", _bins(F.col("ry") - 50, F.col("ry") + 50, bins.width))
    on = F.expr("b = c AND d = f AND abs(lx - rx) <= 50 AND abs(ly - ry) <= 50")
    return one.join(other, on, how).drop("b", "c", "d", "f")


def distance_by_hand(left: DataFrame, right: DataFrame, bins: Bins, how: str) -> DataFrame:
    one = left.withColumn("b", _bin(F.col("lx"), bins.width)).withColumn("d", _bin(F.col("ly"), bins.width))
    other = right.withColumn("c", _bins(F.col("rx") - 50, F.col("rx") + 50, bins.width))
    other = other.withColumn("f", _bins(F.col("ry") - 50, F.col("ry") + 50, bins.width))
    on = F.expr("b = c AND d = f AND sqrt(pow(lx - rx, 2) + pow(ly - ry, 2)) <= 50")
    return one.join(other, on, how).drop("b", "c", "d", "f")


def inequalities_by_hand(left: DataFrame, right: DataFrame, bins: Bins, how: str) -> DataFrame:
    """y follows x: an expert who knows this puts x into bins, since a row's partners are within the noise."""
    noise = 18.0 / (bins.rows // 3)
    one = left.withColumn("b", F.floor(F.col("lx") * 1e9 / bins.width))
    first, last = (F.floor(value * 1e9 / bins.width) for value in (F.col("rx") - noise, F.col("rx")))
    other = right.withColumn("c", F.explode(F.sequence(first, last)))
    return one.join(other, F.expr("b = c AND lx < rx AND ly > ry"), how).drop("b", "c")


IN_INTERVAL = "l.t >= r.s AND l.t < r.e"
CASES = {
    "short": Case("point in short interval", short, IN_INTERVAL, point_by_hand, (20_000, 60_000, 180_000)),
    "mixed": Case("point in interval, mixed lengths", mixed, IN_INTERVAL, point_by_hand, (60_000, 300_000, 1_500_000)),
    "skewed": Case("point in interval, both skewed", skewed, IN_INTERVAL, point_by_hand, (2_000, 10_000, 50_000)),
    "long": Case("point in long interval", long, IN_INTERVAL, point_by_hand, (500_000, 2_000_000, 8_000_000)),
    "skewed points": Case(
        "point in interval, points skewed", skewed_points, IN_INTERVAL, point_by_hand, (20_000, 60_000, 180_000)
    ),
    "groups": Case(
        "interval, 20 keys", short, f"l.g = r.h AND {IN_INTERVAL}", equal_point_by_hand,
        (60_000, 240_000, 1_000_000),
    ),
    "keys": Case(
        "interval, 1,000 keys", keyed, f"l.g = r.h AND {IN_INTERVAL}", equal_point_by_hand,
        (10_000_000, 40_000_000, 160_000_000),
    ),
    "overlap mixed": Case(
        "overlap, mixed lengths", overlapping_mixed, "l.ls < r.e AND r.s < l.le", overlap_by_hand,
        (20_000, 80_000, 320_000),
    ),
    "overlap": Case("overlap", overlapping, "l.ls < r.e AND r.s < l.le", overlap_by_hand, (5_000, 20_000, 80_000)),
    "band": Case("band", near, "abs(l.t - r.rt) <= 1000", band_by_hand, (2_000, 8_000)),
    "bands": Case(
        "two bands", near_in_two, "abs(l.lx - r.rx) <= 50 AND abs(l.ly - r.ry) <= 50", two_bands_by_hand, (100, 200)
    ),
    "distance": Case(
        "distance", near_in_two, "sqrt(pow(l.lx - r.rx, 2) + pow(l.ly - r.ry, 2)) <= 50", distance_by_hand, (100, 200)
    ),
    "inequalities": Case(
        "two inequalities", noisy, "l.lx < r.rx AND l.ly > r.ry", inequalities_by_hand, (20_000, 80_000)
    ),
}  # fmt: skip


def rows_of(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def two_columns(frame: DataFrame) -> None:
    rows_of(frame.select(frame.columns[-1], frame.columns[3]))


ASKED: dict[str, Callable[[DataFrame], object]] = {
    "rows": rows_of,
    "count": DataFrame.count,
    "2 columns": two_columns,
}


class Row(NamedTuple):
    title: str
    how: str
    asked: str
    by_hand: float
    width: int
    ours: float
    pairs: int


def compare(spark: SparkSession, name: str, rows: int, how: str, runs: int, wanted: list[str]) -> Iterator[Row]:
    case = CASES[name]
    with tempfile.TemporaryDirectory() as directory:
        frames = []
        for number, table in enumerate(case.tables(rows, np.random.default_rng(1))):
            path = Path(directory) / f"{number}.parquet"
            pq.write_table(table, path, row_group_size=GROUP_ROWS)
            frames.append(spark.read.parquet(str(path)))
        left, right = frames
        found = dovetail.join(left, right, case.on, how).count()
        # Where intervals become shorter with more rows, so do the best bins.
        widths = {*case.widths, *(max(1, width * 1_000_000 // rows) for width in case.widths)}
        known = case.by_hand(left, right, Bins(max(widths), rows), how).count()
        if found != known:
            raise AssertionError(f"{case.title}: {found} rows, {known} by hand")
        for asked, run in ((one, ASKED[one]) for one in wanted):
            hands = {w: partial(case.by_hand, left, right, Bins(w, rows), how) for w in widths}
            join = partial(dovetail.join, left, right, case.on, how)
            tried = {w: min(_cpu(run, hand) for _ in range(2)) for w, hand in hands.items()}
            for _ in range(2):
                run(join())
            best = min(tried, key=lambda width: tried[width])
            theirs, ours = [], []
            for _ in range(runs):
                theirs.append(_cpu(run, hands[best]))
                ours.append(_cpu(run, join))
            yield Row(case.title, how, asked, statistics.median(theirs), best, statistics.median(ours), found)


def _cpu(run: Callable[[DataFrame], object], join: Callable[[], DataFrame]) -> float:
    return measure(lambda: run(join())).cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="all by default")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--how", nargs="+", default=["inner"], choices=["inner", "left", "left_anti"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--asked", nargs="+", default=[*ASKED], choices=[*ASKED])
    given = parser.parse_args()
    spark = local_session("by hand")
    print(f"{'join':34}{'how':>10}{'rows out':>12}{'asked':>11}{'by hand':>9}{'width':>10}{'ours':>8}{'ratio':>7}")
    for name in given.cases or CASES:
        for how in given.how:
            if how != "inner" and CASES[name].by_hand is overlap_by_hand:
                continue  # the hand-written query needs a second pass
            for row in compare(spark, name, given.rows, how, given.runs, given.asked):
                print(
                    f"{row.title:34}{row.how:>10}{row.pairs:>12,}{row.asked:>11}{row.by_hand:>9.2f}{row.width:>10,}"
                    f"{row.ours:>8.2f}{row.by_hand / row.ours:>7.2f}",
                    flush=True,
                )
    spark.stop()


if __name__ == "__main__":
    main()
