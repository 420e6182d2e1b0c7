"""Chooses the joins of a query that Dovetail runs, and runs them.

When Spark plans a join, its inputs are already filtered and pruned. We take it if Spark would compare all pairs of
rows, and there are many. The plan then contains a node of ours, and nothing is read until the query runs: the inputs
are sampled then. If anything fails, Spark runs the join as it would have without us.
"""

from __future__ import annotations

import warnings
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dovetail.errors import DovetailError
from dovetail.planning.kernel_plans import SPARK
from dovetail.request import Request
from dovetail.spark.catalyst.interrupts import safe_interrupts
from dovetail.spark.catalyst.strategy import JavaFunction, check_types, condition_text, only_columns
from dovetail.spark.frames.renaming import by_position
from dovetail.spark.joins import best_dataframes, check_best, count_rows, join_dataframes, plan_unseen
from dovetail.spark.session.java_sessions import python_session

ENABLED = "spark.dovetail.enabled"
LEAST_PAIRS = "spark.dovetail.leastPairs"
MANY_PAIRS = 3e8  # from here on a nested loop takes more CPU: benchmarks/plain_sql.py
ENDED = ("CANCELLED", "KeyboardInterrupt")  # in errors of Spark, and of joins inside the join


class Planner(JavaFunction):
    """Takes joins in the sessions of one context. Java calls it for each join with many pairs, and passes the session.

    It returns None for a join that Spark should run, and a text if the query has to end.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.strategy: Any = None  # the counterpart in Java

    def apply(self, given: Any) -> Any:
        try:
            with safe_interrupts(self._spark):
                return None if self.refuse(given[0], given[1]) is not None else Run(self)
        except BaseException as error:
            return _answer(error)

    def refuse(self, session: Any, join: Any) -> str | None:
        """Why Spark runs a join that is of a suitable kind. None if we take it."""
        try:
            request = self._request(session, join)
            if request.top is not None:
                check_best(request)
                return None
            _, plan = plan_unseen(request)
        except DovetailError as error:
            return str(error)
        # Spark's own join would be planned here again.
        return plan.operator.why if plan.operator.name == SPARK else None

    def rows(self, session: Any, join: Any, counted: bool, columns: Any) -> Any:
        """An RDD of Spark's internal rows: columns of the result, or numbers that add up to how many rows it has."""
        with safe_interrupts(self._spark):
            return self._rows(session, join, counted, columns)._jdf.queryExecution().toRdd()

    def _rows(self, session: Any, join: Any, counted: bool, columns: Any) -> DataFrame:
        request = self._request(session, join)
        if counted:
            return count_rows(request)
        request = only_columns(self.strategy, request, join, columns)
        joined = join_dataframes(request) if request.top is None else best_dataframes(request)
        check_types(self.strategy, joined, columns)
        return joined

    def _request(self, session: Any, join: Any) -> Request:
        """The join as a call of `dovetail.join`. Columns are named by position."""
        spark = python_session(self._spark, session)
        arguments = {
            "left": self._frame(spark, join.left()),
            "right": self._frame(spark, join.right()),
            "on": condition_text(self.strategy, session, join),
            "how": self.strategy.how(join),
            "trusted": True,
        }
        best = self.strategy.best(join)
        if best is not None:
            top, ties, order = best
            arguments |= {"top": top, "ties": ties, "order_by": list(order)}
        return Request.read("join", arguments, lambda: ())

    def _frame(self, spark: SparkSession, plan: Any) -> DataFrame:
        jvm: Any = spark._jvm
        rows = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)
        return by_position(rows)


class Run(JavaFunction):
    """A join in a plan. Returns its rows; None if Spark has to run it; a text if the query has to end."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def apply(self, given: Any) -> Any:
        try:
            return self._planner.rows(*given)
        except BaseException as error:
            return _answer(error)


def _answer(error: BaseException) -> str | None:
    """None, after a warning, or the reason why the query has to end. Exceptions raised here would be lost in py4j."""
    if not isinstance(error, Exception) or any(word in str(error) for word in ENDED):
        return f"{type(error).__name__}: {error}"
    reason = str(error) if isinstance(error, DovetailError) else f"{type(error).__name__}: {error}"
    try:
        warnings.warn(f"Spark runs a join that Dovetail was to run: {reason}", RuntimeWarning, stacklevel=2)
    except RuntimeWarning as asked:  # warnings are turned into errors
        return str(asked)
    return None
