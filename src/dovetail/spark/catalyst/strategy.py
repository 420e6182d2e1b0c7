"""The strategy in Java that hands joins to Python, compiled in the JVM of a running session.

Spark has the compiler (Janino) that it compiles its own queries with, so that there is no jar to install and no
session to start again, and the class is compiled against the Spark that runs it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any
from weakref import WeakKeyDictionary

from pyspark import java_gateway
from pyspark.sql import SparkSession

SOURCE = files(__package__) / "JoinStrategy.java"
NAME = "dovetail.catalyst.JoinStrategy"

_compiled: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # by the gateway of a JVM


def strategy_class(spark: SparkSession) -> Any:
    """The class, as Java's reflection has it."""
    gateway: Any = spark.sparkContext._gateway
    if gateway not in _compiled:
        jvm = gateway.jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(SOURCE.read_text())
        _compiled[gateway] = compiler.getClassLoader().loadClass(NAME)
    return _compiled[gateway]


def make_strategy(spark: SparkSession, planner: Any) -> Any:
    """A strategy that asks a planner, which Python implements."""
    gateway: Any = spark.sparkContext._gateway
    java_gateway.ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    no_kinds = gateway.new_array(gateway.jvm.java.lang.Class, 0)
    nothing = gateway.new_array(gateway.jvm.java.lang.Object, 0)
    strategy = strategy_class(spark).getDeclaredConstructor(no_kinds).newInstance(nothing)
    strategy.setPlanner(planner)
    return strategy


class JavaFunction:
    """A function of Python, for Java to call. It must not raise: py4j would lose the error."""

    class Java:
        implements = ["java.util.function.Function"]  # noqa: RUF012  as py4j reads it

    def apply(self, given: Any) -> Any:
        raise NotImplementedError
