"""The Java strategy that passes joins to Python. It is compiled in the JVM of a running session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any
from weakref import WeakKeyDictionary

from pyspark import java_gateway
from pyspark.sql import DataFrame, SparkSession

from dovetail.errors import ConditionError, DovetailError
from dovetail.request import Request
from dovetail.spark.session.java_code import NotCompiled, compile_classes, new_object

PACKAGE = "dovetail.catalyst"
CLASSES = (  # each may use the ones before it
    "LeftToSpark",
    "RangeHint",
    "ParquetFooters",
    "InputRows",
    "KeyValues",
    "BestPartners",
    "PlanLeaf",
    "DovetailJoin",
    "Counted",
    "ConditionText",
    "Foreign",
    "Risky",
    "Computed",
    "FirstRows",
    "JoinStrategy",
    "Marked",
    "MarkedJoins",
)
STRATEGY = "JoinStrategy"
NAME = f"{PACKAGE}.{STRATEGY}"
RIGHT_SUFFIX = "_right"

_compiled: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # the loader, by the gateway of a JVM


def _loader(spark: SparkSession) -> Any:
    gateway: Any = spark.sparkContext._gateway
    if gateway not in _compiled:
        try:
            _compiled[gateway] = compile_classes(gateway, __package__, CLASSES)
        except NotCompiled as reason:
            raise DovetailError(
                f"dovetail.enable does not know the planner of Spark {spark.version} ({reason}). Use dovetail.join."
            ) from reason
    return _compiled[gateway]


def java_class(spark: SparkSession, name: str) -> Any:
    """One of the classes, as a Java reflection object."""
    return _loader(spark).loadClass(f"{PACKAGE}.{name}")


def make_strategy(spark: SparkSession, planner: Any, many_pairs: float) -> Any:
    """A strategy that passes joins with many pairs of rows to a planner implemented in Python."""
    strategy = make_object(spark, STRATEGY)
    strategy.setPlanner(planner, many_pairs)
    return strategy


def condition_text(strategy: Any, session: Any, join: Any) -> str:
    """The condition of a join as SQL. Raises ConditionError if Spark would not parse it to the same condition."""
    text = strategy.text(session, join)
    if text is None:
        raise ConditionError(
            "Spark reads its own SQL of the condition as another one: a view has computed in another time zone or mode "
            "than the session, a clock shows a time twice, or a function has no SQL"
        )
    return str(text)


def only_columns(strategy: Any, request: Request, join: Any, columns: Any) -> Request:
    """The request for some columns of a join. Columns of its inputs are named by position."""
    if columns.size() == join.output().size():
        return request
    left, right = (list(frame.columns) for frame in request.input_list)
    names = [*left, *(name + RIGHT_SUFFIX if name in left else name for name in right)]
    return request.but(columns=[names[place] for place in places(strategy, join, columns)])


def places(strategy: Any, join: Any, columns: Any) -> list[int]:
    """The places of columns in the output of a join."""
    return [int(place) for place in str(strategy.places(join, columns)).split()]


def check_types(strategy: Any, joined: DataFrame, columns: Any) -> None:
    """Refuse a result whose columns are not those of the query."""
    output = joined._jdf.queryExecution().analyzed().output()
    found, wanted = str(strategy.types(output)), str(strategy.types(columns))
    if found != wanted:
        raise DovetailError(f"the columns are {found}, and should be {wanted}")


def make_object(spark: SparkSession, name: str) -> Any:
    """An object of one of the classes, which may call Python functions."""
    gateway: Any = spark.sparkContext._gateway
    java_gateway.ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    return new_object(gateway, _loader(spark), f"{PACKAGE}.{name}")


class JavaFunction(ABC):
    """A Python function that Java can call. It must not raise: py4j would lose the exception."""

    class Java:
        implements = ["java.util.function.Function"]  # noqa: RUF012  the form that py4j requires

    @abstractmethod
    def apply(self, given: Any) -> Any: ...
