"""Base of the contenders on Spark: a session on all cores of this machine, tables as Parquet files, the noop sink."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from benchmarks.nonequi.answer import Answer, checksum_sql
from benchmarks.nonequi.case import Files
from benchmarks.nonequi.contender import Contender


class OnSpark(Contender):
    environment = "spark"
    packages: ClassVar[tuple[str, ...]] = ("pyspark",)
    first_by = "`take`"

    def load(self, files: Files) -> None:
        from dovetail.spark.session import local_session

        cores = len(os.sched_getaffinity(0))
        conf = {"spark.sql.shuffle.partitions": str(2 * cores), "spark.driver.memory": "4g"}
        self.spark = local_session("nonequi", f"local[{cores}]", conf)
        self.left, self.right = (self.spark.read.parquet(str(file)) for file in files)
        self.left.createOrReplaceTempView("l")
        self.right.createOrReplaceTempView("r")

    def query(self) -> Any:
        """The result as a DataFrame."""
        raise NotImplementedError

    def rows(self) -> Any:
        found = self.query()
        found.write.format("noop").mode("overwrite").save()
        return found

    def count(self) -> int:
        return int(self.query().count())

    def first(self, rows: int) -> int:
        return len(self.query().take(rows))

    def answer(self, result: Any) -> Answer:
        count, checksum = result.selectExpr(*_columns(checksum_sql(self.case.question))).first()
        return Answer(count, checksum)


def _columns(text: str) -> list[str]:
    first, _, second = text.partition(", ")
    return [first, second]
