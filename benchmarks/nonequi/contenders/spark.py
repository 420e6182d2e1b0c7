"""The plain query with Spark's own plan."""

from __future__ import annotations

from typing import Any

from benchmarks.nonequi.case import Case
from benchmarks.nonequi.contenders.on_spark import OnSpark
from benchmarks.nonequi.question import AsOf, Nearest, Streams
from benchmarks.nonequi.sql import select


class Spark(OnSpark):
    title = "Spark, own plan"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        return "refuses streams without an equality" if isinstance(case.question, Streams) else None

    def query(self) -> Any:
        match self.case.question:
            case AsOf(left_time, right_time, keys):
                # Available since 4.3; off by default.
                self.spark.conf.set("spark.sql.join.asofJoin.enabled", "true")
                on = f" ON l.{keys[0]} = r.{keys[1]}" if keys else ""
                match = f"MATCH_CONDITION (l.{left_time} >= r.{right_time})"
                return self.spark.sql(f"SELECT l.*, r.* FROM l LEFT ASOF JOIN r {match}{on}")
            case Nearest((lx, ly), (rx, ry), k):
                distance = f"pow(l.{lx} - r.{rx}, 2) + pow(l.{ly} - r.{ry}, 2)"
                self.spark.conf.set("spark.sql.join.nearestJoin.enabled", "true")
                return self.spark.sql(f"SELECT l.*, r.* FROM l LEFT JOIN r EXACT NEAREST {k} BY DISTANCE {distance}")
            case question:
                return self.spark.sql(select(question, plain=True))
