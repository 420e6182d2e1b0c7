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
from dovetail.planning.kernel_plans import SPARK
from dovetail.request import Request
from dovetail.spark.catalyst.interrupts import safe_interrupts
from dovetail.spark.catalyst.strategy import JavaFunction, condition_text
from dovetail.spark.joins import best_dataframes, check_best, join_dataframes, plan_unseen

ENABLED = "spark.dovetail.enabled"
LEAST_PAIRS = "spark.dovetail.leastPairs"
MANY_PAIRS = 3e8  # where a nested loop begins to take more CPU: benchmarks/plain_sql.py
ENDED = ("CANCELLED", "KeyboardInterrupt")  # in errors of Spark and of joins inside the join


class Planner(JavaFunction):
    """Takes joins of the sessions of one context. Java calls it for each with many pairs, and says in which session.

    It answers nothing for a join that is Spark's, and a text if the query has to end.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.strategy: Any = None  # the other half, in Java

    def apply(self, given: Any) -> Any:
        try:
            with safe_interrupts(self._spark):
                return None if self.refuse(given[0], given[1]) is not None else Run(self)
        except BaseException as error:
            return _answer(error)

    def refuse(self, session: Any, join: Any) -> str | None:
        """Why Spark runs a join, which could be taken by what it is; None if it is taken."""
        try:
            request = self._request(session, join)
            if request.top is not None:
                check_best(request)
                return None
            _, plan = plan_unseen(request)
        except DovetailError as error:
            return str(error)
        # Spark's own join would come here again.
        return plan.operator.why if plan.operator.name == SPARK else None

    def rows(self, session: Any, join: Any) -> Any:
        """The result, as an RDD of Spark's own rows."""
        with safe_interrupts(self._spark):
            return self._rows(session, join)

    def _rows(self, session: Any, join: Any) -> Any:
        request = self._request(session, join)
        joined = join_dataframes(request) if request.top is None else best_dataframes(request)
        wanted, found = join.schema(), joined._jdf.schema()
        if not self.strategy.haveSameTypes(wanted, found):
            raise DovetailError(f"the columns are {found.simpleString()}, and should be {wanted.simpleString()}")
        return joined._jdf.queryExecution().toRdd()

    def _request(self, session: Any, join: Any) -> Request:
        """The join as a call of `dovetail.join`, whose columns are called by their position."""
        spark = self._python_session(session)
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

    def _python_session(self, session: Any) -> SparkSession:
        own: Any = self._spark
        if own._jsparkSession.equals(session):
            return self._spark
        made: Any = SparkSession.__new__(SparkSession)  # its __init__ would make it the session of RDD.toDF
        made._sc, made._jsc, made._jvm, made._jsparkSession = own._sc, own._jsc, own._jvm, session
        return made  # type: ignore[no-any-return]

    def _frame(self, spark: SparkSession, plan: Any) -> DataFrame:
        jvm: Any = spark._jvm
        rows = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)
        return rows.toDF(*(f"c{place}" for place in range(plan.output().size())))


class Run(JavaFunction):
    """A join that is in a plan: its rows; nothing, if Spark has to run it; a text, if the query has to end."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def apply(self, given: Any) -> Any:
        try:
            return self._planner.rows(given[0], given[1])
        except BaseException as error:
            return _answer(error)


def _answer(error: BaseException) -> str | None:
    """Nothing, after a warning, or why the query has to end: py4j would lose what is raised here."""
    if not isinstance(error, Exception) or any(word in str(error) for word in ENDED):
        return f"{type(error).__name__}: {error}"
    reason = str(error) if isinstance(error, DovetailError) else f"{type(error).__name__}: {error}"
    try:
        warnings.warn(f"Spark runs a join that Dovetail was to run: {reason}", RuntimeWarning, stacklevel=2)
    except RuntimeWarning as asked:  # warnings are errors
        return str(asked)
    return None
