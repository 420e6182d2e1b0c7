"""tempo's as-of join of time series on Spark."""

from __future__ import annotations

from typing import Any

from benchmarks.nonequi.case import Case
from benchmarks.nonequi.contenders.on_spark import OnSpark
from benchmarks.nonequi.question import AsOf


class Tempo(OnSpark):
    title = "tempo"
    packages = ("dbl-tempo", "pyspark")

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        return None if isinstance(case.question, AsOf) else "joins nothing but time series"

    def query(self) -> Any:
        from tempo import TSDF

        question = self.case.question
        assert isinstance(question, AsOf)
        left_key, right_key = question.keys or ("l_k", "r_k")
        series = [  # key and time columns have the same names on both sides
            TSDF(frame.withColumnsRenamed({time: "t", key: "k"}), "t", ["k"] if question.keys else None)
            for frame, time, key in (
                (self.left, question.left_time, left_key),
                (self.right, question.right_time, right_key),
            )
        ]
        found = series[0].asofJoin(series[1], right_prefix="right").df
        return found.withColumnRenamed("right_r_id", "r_id")
