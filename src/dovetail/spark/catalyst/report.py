"""`dovetail.explain(query)`: the joins that Dovetail and Spark run in a query, with approximate costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from dovetail.errors import InputError
from dovetail.spark.catalyst.enabling import is_enabled
from dovetail.spark.catalyst.replacing import ENABLED, LEAST_PAIRS, MANY_PAIRS, Planner
from dovetail.spark.catalyst.strategy import make_strategy

SECONDS_PER_PAIR = 8e-9  # of Spark's nested loop, in compiled code
SECONDS_PER_ROW = 2e-6  # to sample a row, pass it to Python and join it
SECONDS_TO_BEGIN = 2.0  # jobs, workers, a shuffle


@dataclass(frozen=True, slots=True)
class QueryJoin:
    """A join of a query."""

    condition: str
    how: str
    rows: tuple[float, float]  # of either side, approximately
    pairs: float  # compared by Spark; 0 if equal keys find them
    taken: bool
    why: str

    @property
    def spark_seconds(self) -> float:
        """Approximate CPU time of Spark's nested loop."""
        return self.pairs * SECONDS_PER_PAIR

    @property
    def dovetail_seconds(self) -> float:
        """Approximate CPU time of Dovetail. Large results add to both."""
        return SECONDS_TO_BEGIN + sum(self.rows) * SECONDS_PER_ROW

    def __str__(self) -> str:
        name = "Dovetail" if self.taken else "Spark"
        cost = (
            f"CPU        about {_figure(self.spark_seconds)} s by Spark, {_figure(self.dovetail_seconds)} s by Dovetail"
        )
        lines = [
            f"{self.how}: {self.condition}",
            f"run by     {name}: {self.why}",
            f"rows       about {_figure(self.rows[0])} and {_figure(self.rows[1])}",
            f"pairs      about {_figure(self.pairs)}" if self.pairs else "",
            cost if self.pairs else "",
        ]
        return "\n".join(line for line in lines if line)


@dataclass(frozen=True, slots=True)
class QueryJoins:
    """The joins of a query, from the outermost to the innermost."""

    joins: tuple[QueryJoin, ...]

    @property
    def taken(self) -> int:
        """The number of joins that Dovetail runs."""
        return sum(join.taken for join in self.joins)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.joins)) or "The query has no joins."


def explain_query(frame: DataFrame) -> QueryJoins:
    """The joins of a query as Spark is about to plan them. Nothing runs."""
    spark = frame.sparkSession
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise InputError(
            "a Spark Connect session plans its queries on the server: explain needs two inputs and a condition."
        )
    planner = Planner(spark)
    planner.strategy = make_strategy(spark, planner, MANY_PAIRS)
    execution: Any = frame._jdf.queryExecution()
    found = planner.strategy.joins(execution.optimizedPlan())
    return QueryJoins(tuple(_explained(frame, planner, found.apply(place)) for place in range(found.size())))


def _explained(frame: DataFrame, planner: Planner, join: Any) -> QueryJoin:
    spark, strategy = frame.sparkSession, planner.strategy
    rows = (float(strategy.rows(join.left())), float(strategy.rows(join.right())))
    reason, pairs = strategy.refuse(join), float(strategy.pairs(join))
    least = float(spark.conf.get(LEAST_PAIRS, None) or MANY_PAIRS)
    if reason is None and pairs < least:
        reason = f"it has fewer pairs of rows than {LEAST_PAIRS}, which is {_figure(least)}"
    if reason is None:
        reason = planner.refuse(spark._jsparkSession, join)
    if reason is None and not is_enabled(spark):
        reason = "dovetail.enable(spark) has not been called; Dovetail would run it"
    if reason is None and str(spark.conf.get(ENABLED, "true")).strip().lower() == "false":
        reason = f"{ENABLED} is false; Dovetail would run it"
    condition = join.condition().get().sql() if join.condition().isDefined() else "no condition"
    why = reason or "Spark would compare all these pairs"
    if _is_asked_for(join):
        reason, why = None, "dovetail.join has made it"
    return QueryJoin(str(condition), join.joinType().sql().lower(), rows, pairs, reason is None, why)


def _is_asked_for(join: Any) -> bool:
    """Whether it was created by `dovetail.join`, which leaves a hint."""
    hint = join.hint().leftHint()
    strategy = hint.get().strategy() if hint.isDefined() else hint
    return strategy.isDefined() and str(strategy.get().getClass().getSimpleName()) == "Marked"


def _figure(number: float) -> str:
    return f"{number:,.0f}" if number < 1e6 else f"{number:.1e}".replace("e+0", "e").replace("e+", "e")
