"""`dovetail.enable(spark)`: Dovetail runs joins of plain Spark code that would otherwise be nested loops."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession

from dovetail.errors import InputError
from dovetail.spark.catalyst.replacing import MANY_PAIRS, Planner
from dovetail.spark.catalyst.strategy import NAME, make_strategy


class Enabled:
    """Dovetail is enabled in a session. As a context manager, it disables it at the end."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __enter__(self) -> Enabled:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        disable(self._spark)


def enable(spark: SparkSession) -> Enabled:
    """Run joins of plain Spark code with Dovetail if Spark would run them as nested loops.

    This applies to `spark.sql` and `df.join` in this session from now on. Dovetail runs joins without an equality that
    have many pairs of rows to compare; Spark runs all others. Results are the same, and nothing is read before a query
    runs.

    Args:
        spark: A classic session. Its workers need Dovetail, as for `dovetail.join`.

    Returns:
        A context manager that disables it at the end. Using it is optional.

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
    """Enable sessions that are created from now on and share the catalog of this one: those of a Connect server.

    The setting spark.dovetail.enabled disables it in each of them.
    """
    planner = Planner(spark)
    planner.strategy = make_strategy(spark, planner, MANY_PAIRS)
    session: Any = spark._jsparkSession
    planner.strategy.enableNewSessions(session)


def disable(spark: SparkSession) -> None:
    """Undo `enable`: Spark runs all joins of the session again.

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
