"""Publishes figures of streaming joins in Spark's own metrics, for its sinks: Prometheus, Graphite, JMX, CSV.

    micro-batch --progress--> JoinMetrics, a listener in the JVM --gauges--> Spark's MetricsSystem --> sinks

Python cannot add to Spark's metrics. The listener is a Java class that is compiled in the session.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from dovetail.core.figures import FIGURES
from dovetail.errors import DovetailError, InputError
from dovetail.spark.session.java_code import NotCompiled, compile_classes, new_object

CLASS = "JoinMetrics"
SUMS = tuple(figure.name for figure in FIGURES.values() if figure.over_time == "sum")

_listeners: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()  # by the gateway of a JVM, then by session


def publish_metrics(spark: SparkSession) -> None:
    """Publish the figures of streaming joins in Spark's own metrics, for Spark's metric sinks.

    From now on, each streaming join of this session is a metrics source, named `dovetail.` and the name of the query.
    Repeated calls have no effect.

    Args:
        spark: A classic session.

    Example:
        >>> dovetail.spark.publish_metrics(spark)  # doctest: +SKIP
    """
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise InputError(
            "metrics of a Spark Connect session belong to its server: dovetail.listen(spark) records them here."
        )
    gateway: Any = spark.sparkContext._gateway
    own: Any = spark._jsparkSession
    known = _listeners.setdefault(gateway, {})
    session = str(own.sessionUUID())
    if session in known:
        return
    try:
        loader = compile_classes(gateway, __package__, [CLASS])
    except NotCompiled as reason:
        raise DovetailError(
            f"Spark {spark.version} does not take metrics of others ({reason}). dovetail.listen(spark) records them."
        ) from reason
    listener = new_object(gateway, loader, f"dovetail.streaming.{CLASS}")
    listener.setSums(_java_list(gateway, SUMS))
    own.streams().addListener(listener)
    known[session] = listener


def published(spark: SparkSession) -> dict[str, dict[str, float]]:
    """The current figures in the sinks, by source and name."""
    own: Any = spark._jsparkSession
    listener = _listeners.get(spark.sparkContext._gateway, {}).get(str(own.sessionUUID()))
    return {} if listener is None else {name: dict(values) for name, values in dict(listener.values()).items()}


def _java_list(gateway: Any, values: tuple[str, ...]) -> Any:
    made = gateway.jvm.java.util.ArrayList()
    for value in values:
        made.add(value)
    return made
