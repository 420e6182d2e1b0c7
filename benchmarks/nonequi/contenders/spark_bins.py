"""Spark with hand-written bins: rows are put into bins, joined on equal bins, and filtered.

Several bin widths are tried for each case; the fastest is stored with the tables and measured. OR of equalities is a
union of joins, and an as-of join is a window over the union of both tables.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contenders.on_spark import OnSpark
from benchmarks.nonequi.question import (
    AsOf,
    Band,
    Compare,
    EitherEqual,
    Nearest,
    Overlap,
    Pairs,
    Streams,
    WindowSums,
    Within,
)
from benchmarks.nonequi.sql import condition, select

TRIED = (0.5, 2.0, 8.0)  # times the width suggested by the case


class SparkWithBins(OnSpark):
    title = "Spark, bins by hand"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        match case.question:
            case Streams():
                return "refuses streams without an equality"
            case Nearest():
                return "how far away the nearest point is, is not known before"
            case AsOf() | Pairs((EitherEqual(),)):
                return None
            case Pairs() | WindowSums() as question:
                keys = [term for term in question.terms if isinstance(term, Compare) and term.operator == "="]
                ranges = [term for term in question.terms if isinstance(term, Within | Overlap | Band)]
                if not ranges or len(keys) + len(ranges) < len(question.terms):
                    return "bins need a bound on both sides; this is Spark's own plan"
        return None

    def load(self, files: Files) -> None:
        super().load(files)
        if self.case.bin_width:
            self.width = self._best_width(files.left.with_name("bins.json"))

    def query(self) -> Any:
        match self.case.question:
            case AsOf(left_time, right_time, keys):
                return self._as_of(left_time, right_time, keys)
            case Pairs((EitherEqual(),)):
                return self.spark.sql(select(self.case.question))
        return self._binned(self.width)

    def _best_width(self, file: Path) -> int:
        if not file.exists():
            taken: dict[int, float] = {}
            for factor in TRIED:
                width = int(factor * self.case.bin_width)
                started = time.perf_counter()
                self._binned(width).count()
                taken[width] = time.perf_counter() - started
            file.write_text(json.dumps(min(taken, key=lambda width: taken[width])))
        return int(json.loads(file.read_text()))

    def _binned(self, width: int) -> Any:
        """Pairs by bins; left rows without a pair are added by their number."""
        from pyspark.sql import functions as F

        question = self.case.question
        assert isinstance(question, Pairs | WindowSums)
        left_bins: list[str] = []
        right_bins: list[str] = []
        once = []
        for term in question.terms:
            match term:
                case Compare():
                    continue  # an equality; it stays in the condition
                case Within(point, start, end):
                    ends = (point, point), (start, f"{end} - 1")
                case Overlap(left_start, left_end, right_start, right_end):
                    ends = (left_start, f"{left_end} - 1"), (right_start, f"{right_end} - 1")
                case Band(mine, theirs, reach):
                    ends = (mine, mine), (f"{theirs} - {reach}", f"{theirs} + {reach}")
            number = len(left_bins)
            for side, (low, high), bins in zip("lr", ends, (left_bins, right_bins), strict=True):
                every = f"explode(sequence(({low}) div {width}, ({high}) div {width}))"
                bins.append(f"{every if low != high else f'{low} div {width}'} AS {side}_bin{number}")
            # A pair that shares several bins is kept in the first.
            once.append(f"l_bin{number} = greatest({ends[0][0]}, {ends[1][0]}) div {width}")
        left, right = self.left, self.right
        for text in left_bins:
            left = left.selectExpr("*", text)
        for text in right_bins:
            right = right.selectExpr("*", text)
        numbers = range(len(left_bins))
        equal = " AND ".join(f"l_bin{n} = r_bin{n}" for n in numbers)
        exact = condition(question.terms).replace("l.", "").replace("r.", "")
        drop = [f"{side}_bin{n}" for side in "lr" for n in numbers]
        pairs = left.join(right, F.expr(" AND ".join([equal, exact, *once]))).drop(*drop)
        match question:
            case WindowSums(_, value):
                sums = pairs.groupBy("l_id").agg(F.count("r_id").alias("n"), F.sum(value).alias("total"))
                return self.left.select("l_id").join(sums, "l_id", "left").fillna(0, ["n"])
            case Pairs(_, "left"):
                return pairs.unionByName(self._without_partner(pairs), allowMissingColumns=True)
            case Pairs(_, "left_anti"):
                return self._without_partner(pairs)
        return pairs

    def _without_partner(self, pairs: Any) -> Any:
        return self.left.join(pairs.select("l_id"), "l_id", "left_anti")

    def _as_of(self, left_time: str, right_time: str, keys: tuple[str, str] | None) -> Any:
        """The union of both tables, sorted by time: each left row takes the last right row before it."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        left_key, right_key = keys or ("1", "1")
        left = self.left.selectExpr("struct(*) AS l", "NULL AS r", f"{left_key} AS k", f"{left_time} AS t", "1 AS side")
        right = self.right.selectExpr(
            "NULL AS l", "struct(*) AS r", f"{right_key} AS k", f"{right_time} AS t", "0 AS side"
        )
        window = Window.partitionBy("k").orderBy("t", "side").rowsBetween(Window.unboundedPreceding, 0)
        carried = left.unionByName(right).withColumn("r", F.last("r", ignorenulls=True).over(window))
        return carried.where("side = 1").select("l.*", "r.*")
