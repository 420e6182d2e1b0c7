"""SQL text cannot run code in the driver's JVM, unless the caller trusts it. Columns are code and may call anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import dovetail
from dovetail.condition.spark_functions import FUNCTIONS
from dovetail.errors import ConditionError, InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROPERTY = "dovetail.test.trusted"
EVIL = f"java_method('java.lang.System', 'setProperty', '{PROPERTY}', 'set')"
ON = f"{EVIL} IS NULL AND l.k < r.w"
SIDE_EFFECTS = tuple(EVIL.replace("java_method", name) for name in ("java_method", "reflect", "try_reflect"))


@pytest.fixture
def was_set(spark: SparkSession) -> Iterator[Callable[[], bool]]:
    """Whether SQL text has set a property of the driver's JVM."""
    system = spark._jvm.java.lang.System
    system.clearProperty(PROPERTY)
    yield lambda: system.getProperty(PROPERTY) is not None
    system.clearProperty(PROPERTY)


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    return spark.createDataFrame([(1,), (2,)], "k int"), spark.createDataFrame([(2, "a"), (3, "b")], "w int, s string")


def calls(left: DataFrame, right: DataFrame, text: str) -> list[Callable[[], Any]]:
    """Every call that takes a condition on DataFrames."""
    return [
        lambda: dovetail.join(left, right, text),
        lambda: dovetail.join(left, right, ["l.k < r.w", text]),
        lambda: dovetail.join(left, right, text, "left"),
        lambda: dovetail.count(left, right, text),
        lambda: dovetail.aggregate(left, right, text, {"n": "count(*)"}),
        lambda: dovetail.aggregate(left, right, "l.k < r.w", {"n": f"min({text})"}),
        lambda: dovetail.aggregate(left, right, "l.k < r.w", {"n": "count(*)"}, by=text),
        lambda: dovetail.explain(left, right, text),
        lambda: dovetail.explain(left, right, text, progressive=True),
        lambda: list(dovetail.progressive(left, right, text)),
        lambda: list(dovetail.progressive(left, right, text, algorithm="diag")),
        lambda: list(dovetail.progressive(left, right, "l.k < r.w", order_by=f"concat(r.s, {text})")),
        lambda: dovetail.multijoin({"l": left, "r": right, "x": right}, f"l.k < r.w AND r.w = x.w AND {text}"),
    ]


@pytest.mark.spark
def test_text_sets_nothing(
    spark: SparkSession, frames: tuple[DataFrame, DataFrame], was_set: Callable[[], bool]
) -> None:
    for call in calls(*frames, ON):
        with pytest.raises((ConditionError, InputError)):
            call()
    for text in SIDE_EFFECTS:
        with pytest.raises(ConditionError, match=r"text may call functions of Spark that compute"):
            dovetail.join(*frames, f"{text} IS NULL AND l.k < r.w")
    assert not was_set()


@pytest.mark.spark
def test_end_sets_nothing(spark: SparkSession, was_set: Callable[[], bool]) -> None:
    stream = spark.readStream.format("rate").load()
    for end in (f"{EVIL} = 'x'", ("value = 3", f"{EVIL} IS NULL"), "my_function(value) = 3", "value IN (SELECT 1)"):
        with pytest.raises(ConditionError):
            dovetail.join(stream, stream, "l.value = r.value", end=end)
    several = {"a": stream, "b": stream, "c": stream}
    with pytest.raises(ConditionError):
        dovetail.multijoin(several, "a.value = b.value AND b.value = c.value", end=f"{EVIL} = 'x'")
    assert not was_set()
    dovetail.join(stream, stream, "l.value = r.value", end=("value = 3", "upper(CAST(value AS STRING)) LIKE '9%'"))
    dovetail.join(stream, stream, "l.value = r.value", end=f"{EVIL} = 'x'", trusted=True)


@pytest.mark.spark
def test_trusted_text_and_columns(
    spark: SparkSession, frames: tuple[DataFrame, DataFrame], was_set: Callable[[], bool]
) -> None:
    from pyspark.sql import functions as F

    left, right = frames
    dovetail.join(left, right, ON, trusted=True).count()
    assert was_set()
    spark.udf.register("twice", lambda x: 2 * x, "int")
    with pytest.raises(ConditionError, match=r"twice\(…\)"):
        dovetail.join(left, right, "twice(l.k) = r.w")
    assert dovetail.count(left, right, "twice(l.k) = r.w", trusted=True) == 1
    assert dovetail.join(left, right, F.call_function("twice", left["k"]) == right["w"]).count() == 1
    with pytest.raises(InputError, match="trusted must be True or False; got 'yes'"):
        dovetail.join(left, right, ON, trusted="yes")


@pytest.mark.spark
def test_the_list_is_spark_s_own(spark: SparkSession) -> None:
    """Every function on the list is built in, and none is an aggregate, a generator or a window function."""
    registry = spark._jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    kinds = {}
    names = registry.listFunction().iterator()
    while names.hasNext():
        name = names.next()
        kinds[name.funcName()] = registry.lookupFunction(name).get().getGroup()
    parsed = {"try_cast", "timestampadd", "timestampdiff"}  # syntax that the parser handles
    if spark.version.startswith("4.3"):
        assert FUNCTIONS - kinds.keys() == parsed
    refused = {"agg_funcs", "window_funcs", "generator_funcs", "avro_funcs", "protobuf_funcs"}
    assert not {name for name in FUNCTIONS & kinds.keys() if kinds[name] in refused}
