"""`dovetail.enable(spark)`: from then on, joins of plain Spark code that would be nested loops are Dovetail's."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession

from dovetail.errors import InputError
from dovetail.spark.catalyst.replacing import MANY_PAIRS, Planner
from dovetail.spark.catalyst.strategy import NAME, make_strategy


class Enabled:
    """Dovetail in a session. As a context manager it is switched off at the end."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __enter__(self) -> Enabled:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        disable(self._spark)


def enable(spark: SparkSession) -> Enabled:
    """Let joins of plain Spark code that would be nested loops be run by Dovetail.

    From now on, `spark.sql` and `df.join` of this session reach Dovetail. A join without an equality that has many
    pairs of rows to compare is run by it, all others by Spark. Results are the same, and nothing is read before a query
    runs.

    Args:
        spark: A classic session. Its workers need Dovetail, as for `dovetail.join`.

    Returns:
        A context manager that switches it off at its end, for those who want that.

    Example:
        >>> dovetail.enable(spark)  # doctest: +SKIP
        >>> spark.sql("SELECT * FROM trips JOIN fares ON at BETWEEN since AND until")  # doctest: +SKIP
    """
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise InputError("a Spark Connect session plans its queries on the server. Use dovetail.join.")
    if not is_enabled(spark):
        planner = Planner(spark)
        planner.strategy = make_strategy(spark, planner, MANY_PAIRS)
        _set_strategies(spark, [planner.strategy, *_strategies(spark)])
    return Enabled(spark)


def enable_new_sessions(spark: SparkSession) -> None:
    """Enable the sessions that are made from now on, and that share the catalog of this one: those of Connect's server.

    The setting spark.dovetail.enabled switches it off in each of them.
    """
    planner = Planner(spark)
    planner.strategy = make_strategy(spark, planner, MANY_PAIRS)
    session: Any = spark._jsparkSession
    planner.strategy.enableNewSessions(session)


def disable(spark: SparkSession) -> None:
    """Let Spark run all joins of a session again.

    Args:
        spark: The session that `enable` was called with.

    Example:
        >>> dovetail.disable(spark)  # doctest: +SKIP
    """
    _set_strategies(spark, [one for one in _strategies(spark) if one.getClass().getName() != NAME])


def is_enabled(spark: SparkSession) -> bool:
    return any(one.getClass().getName() == NAME for one in _strategies(spark))


def _strategies(spark: SparkSession) -> list[Any]:
    session: Any = spark._jsparkSession
    found = session.experimental().extraStrategies()
    return [found.apply(place) for place in range(found.size())]


def _set_strategies(spark: SparkSession, strategies: list[Any]) -> None:
    jvm: Any = spark._jvm
    given = jvm.java.util.ArrayList()
    for one in strategies:
        given.add(one)
    converted = jvm.scala.jdk.javaapi.CollectionConverters.asScala(given).toSeq()
    session: Any = spark._jsparkSession
    getattr(session.experimental(), "extraStrategies_$eq")(converted)
