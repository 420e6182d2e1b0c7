"""Which joins of a query Dovetail takes, and how it runs them.

When Spark plans a join, its inputs are filtered and pruned already. It is taken if Spark would compare all pairs of
rows, and these are many. Then the plan has a node of ours, and nothing has been read: inputs are sampled when the query
runs. Whatever goes wrong, Spark runs the join as it would have.
"""

from __future__ import annotations

import warnings
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dovetail.errors import DovetailError
from dovetail.request import Request
from dovetail.spark.catalyst.strategy import JavaFunction
from dovetail.spark.frames.binding import bind_frames
from dovetail.spark.joins import join_dataframes

LEAST_PAIRS = "spark.dovetail.leastPairs"
MANY_PAIRS = 1e9  # Spark compares them in about five seconds of one core, as long as a join of ours takes to begin


class Planner(JavaFunction):
    """Takes joins of one session. Java calls it for each that could be taken."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.strategy: Any = None  # the other half, in Java

    def apply(self, join: Any) -> Any:
        try:
            reason = self.refuse(join)
            return None if reason is not None else Run(self)
        except Exception as error:
            _warn(error)
            return None

    def refuse(self, join: Any) -> str | None:
        """Why Spark runs a join, which could be taken by what it is; None if it is taken."""
        pairs = self.strategy.rows(join.left()) * self.strategy.rows(join.right())
        least = float(self._spark.conf.get(LEAST_PAIRS, None) or MANY_PAIRS)
        if pairs < least:
            return f"it has about {pairs:.1g} pairs of rows, fewer than {LEAST_PAIRS}={least:.1g}"
        try:
            bind_frames(self.condition(join), *self.inputs(join), trusted=True)
        except DovetailError as error:
            return str(error)
        return None

    def inputs(self, join: Any) -> tuple[DataFrame, DataFrame]:
        """Both sides, with columns that are called by their position."""
        return self._frame(join.left()), self._frame(join.right())

    def condition(self, join: Any) -> str:
        return str(self.strategy.text(join))

    def rows(self, join: Any) -> Any:
        """The result, as an RDD of Spark's own rows."""
        left, right = self.inputs(join)
        arguments = {"left": left, "right": right, "on": self.condition(join), "how": self.strategy.how(join)}
        request = Request.read("join", {**arguments, "trusted": True}, lambda: ())
        joined = join_dataframes(request)
        wanted = [join.output().apply(i).dataType().json() for i in range(join.output().size())]
        found = [field.dataType.json() for field in joined.schema.fields]
        if found != wanted:
            raise DovetailError(f"the columns are {found}, and should be {wanted}")
        return joined._jdf.queryExecution().toRdd()

    def rows_by_spark(self, join: Any) -> Any:
        return self._dataset(self.strategy.leaveToSpark(join)).queryExecution().toRdd()

    def _frame(self, plan: Any) -> DataFrame:
        rows = DataFrame(self._dataset(plan), self._spark)
        return rows.toDF(*(f"c{place}" for place in range(plan.output().size())))

    def _dataset(self, plan: Any) -> Any:
        jvm: Any = self._spark._jvm
        return jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._spark._jsparkSession, plan)


class Run(JavaFunction):
    """A join that is in a plan."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def apply(self, join: Any) -> Any:
        try:
            return self._planner.rows(join)
        except Exception as error:
            _warn(error)
        return self._planner.rows_by_spark(join)


def _warn(error: Exception) -> None:
    reason = str(error) if isinstance(error, DovetailError) else f"{type(error).__name__}: {error}"
    warnings.warn(f"Spark runs a join that Dovetail was to run: {reason}", RuntimeWarning, stacklevel=2)
