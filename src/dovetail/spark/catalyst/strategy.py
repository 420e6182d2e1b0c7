"""The strategy in Java that hands joins to Python, compiled in the JVM of a running session.

Spark has the compiler (Janino) that it compiles its own queries with, so that there is no jar to install and no
session to start again, and the classes are compiled against the Spark that runs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.resources import files
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JJavaError
from pyspark import java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dovetail.errors import ConditionError, DovetailError

PACKAGE = "dovetail.catalyst"
CLASSES = (  # each may use those before it
    "LeftToSpark",
    "RangeHint",
    "ParquetFooters",
    "InputRows",
    "KeyValues",
    "PlanLeaf",
    "DovetailJoin",
    "ConditionText",
    "JoinStrategy",
    "Marked",
    "MarkedJoins",
)
STRATEGY = "JoinStrategy"
NAME = f"{PACKAGE}.{STRATEGY}"

_compiled: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # the loader, by the gateway of a JVM


def java_class(spark: SparkSession, name: str) -> Any:
    """One of the classes, as Java's reflection has it."""
    gateway: Any = spark.sparkContext._gateway
    if gateway not in _compiled:
        jvm = gateway.jvm
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for source in CLASSES:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            try:
                compiler.cook(f"{source}.java", (files(__package__) / f"{source}.java").read_text())
            except (Py4JJavaError, PySparkException) as error:
                reason = str(error).split(": ", 1)[-1].splitlines()[0]
                raise DovetailError(
                    f"dovetail.enable does not know the planner of Spark {spark.version} ({reason}). Use dovetail.join."
                ) from error
            loader = compiler.getClassLoader()
        _compiled[gateway] = loader
    return _compiled[gateway].loadClass(f"{PACKAGE}.{name}")


def make_strategy(spark: SparkSession, planner: Any, many_pairs: float) -> Any:
    """A strategy that asks a planner, which Python implements, about joins that have many pairs of rows."""
    strategy = make_object(spark, STRATEGY)
    strategy.setPlanner(planner, many_pairs)
    return strategy


def condition_text(strategy: Any, session: Any, join: Any) -> str:
    """The condition of a join as SQL, which Spark reads as the same condition; raises ConditionError if it does not."""
    text = strategy.text(session, join)
    if text is None:
        raise ConditionError(
            "Spark reads its own SQL of the condition as another one: a view has computed in another time zone or mode "
            "than the session, a clock shows a time twice, or a function has no SQL"
        )
    return str(text)


def make_object(spark: SparkSession, name: str) -> Any:
    """An object of one of the classes, which may call functions of Python."""
    gateway: Any = spark.sparkContext._gateway
    java_gateway.ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    no_kinds = gateway.new_array(gateway.jvm.java.lang.Class, 0)
    nothing = gateway.new_array(gateway.jvm.java.lang.Object, 0)
    return java_class(spark, name).getDeclaredConstructor(no_kinds).newInstance(nothing)


class JavaFunction(ABC):
    """A function of Python, for Java to call. It must not raise: py4j would lose the error."""

    class Java:
        implements = ["java.util.function.Function"]  # noqa: RUF012  as py4j reads it

    @abstractmethod
    def apply(self, given: Any) -> Any: ...
