"""Makes `dovetail.join` of two DataFrames at rest a join that Spark's optimizer sees.

    call         condition, options and plan are checked, and an ordinary join is built; nothing is read
    optimizer    filters and columns are pushed through it, as through any join
    execution    the pruned inputs are sampled and joined in cells; only the needed columns are produced

The options are stored in a hint of the join. A join that Spark runs itself has no hint.

Joins are planned at the call, from samples taken there, on Spark Connect, for streams, with algorithm="diag", and if
the condition calls functions that Spark's optimizer does not push through joins.
"""

from __future__ import annotations

import json
import logging
import traceback
import warnings
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dovetail.condition import is_opaque, spark_sql
from dovetail.core.join_types import JoinType
from dovetail.errors import ConditionError, DovetailError
from dovetail.options import Where
from dovetail.planning.kernel_plans import SPARK
from dovetail.request import Request
from dovetail.result_columns import ResultColumns
from dovetail.spark import joins
from dovetail.spark.batch.cell import check_parameters
from dovetail.spark.batch.counts import rows_of
from dovetail.spark.catalyst.interrupts import safe_interrupts
from dovetail.spark.catalyst.strategy import (
    JavaFunction,
    check_types,
    condition_text,
    make_object,
    only_columns,
    places,
)
from dovetail.spark.diag.join import may_go_along_diagonal
from dovetail.spark.frames.binding import bind_frames
from dovetail.spark.frames.columnless import MARKS
from dovetail.spark.frames.planned import FrameJoin
from dovetail.spark.frames.renaming import by_position, joined_names
from dovetail.spark.frames.result_frames import check_unique, columns_of_result, frame_of_result, joined_request
from dovetail.spark.frames.sink import remember_plan
from dovetail.spark.session.java_sessions import python_session
from dovetail.spark.session.settings import plans_at_once

STRUCTURAL = {"columns", "suffix", "suffixes", "indicator", "validate", "left_on", "right_on", "trusted"}
"""Options that the plan itself contains."""

log = logging.getLogger("dovetail.spark")
_made: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # by the gateway of a JVM


def join_dataframes(request: Request) -> DataFrame:
    """The join as a DataFrame. If possible, Spark has not planned it yet."""
    lazily = _join_lazily(request)
    return joins.join_dataframes(request) if lazily is None else lazily


def _join_lazily(request: Request) -> DataFrame | None:
    """The join as part of a query. None if that is not possible."""
    left, right = request.input_list
    if type(left).__module__.startswith("pyspark.sql.connect."):
        return None
    if left.isStreaming or right.isStreaming or request.algorithm == "diag":
        return None
    if plans_at_once(left.sparkSession) or _marked_joins(left.sparkSession) is None:
        return None
    request.refuse_outside(Where.FRAMES)
    options = _options(request)
    if options is None:
        return None
    columns = columns_of_result(request)
    wanted = replace(columns, kept=None)  # all joined columns: Spark prunes them
    joined = joined_request(request, wanted)
    asked, plan = joins.plan_unseen(joined)
    if plan.operator.name != SPARK and not plan.at_rest:
        check_parameters(plan)
    if request.validate is not None:
        check_unique(request)
    marked = plan.operator.name != SPARK or may_go_along_diagonal(asked.bound, asked.inputs, joined)
    names = [name for name in asked.output.names if name not in MARKS]
    everything = list(enumerate(names))
    selected = everything if wanted.is_plain else _selected(wanted)
    result = _build(asked, plan.how, options if marked else None, everything if selected is None else selected)
    if result is None:
        return None
    if selected is None:
        result = frame_of_result(result, wanted)
    if request.limit is not None:
        result = result.limit(request.limit)
    return remember_plan(result, lambda: joins.join_dataframes(request))


def _selected(columns: ResultColumns) -> list[tuple[int, str]] | None:
    """The positions of the result's columns among joined columns. None if some are computed from several columns."""
    if columns.indicator is not None or any(len(columns.source(part)) > 1 for part in columns.parts):
        return None
    sides = [columns.source(part)[0] for part in columns.parts]
    return [(columns.place(side, part.at(side)), part.name) for side, part in zip(sides, columns.parts, strict=True)]


def _options(request: Request) -> str | None:
    """Options and parameters as text. None if some are not plain values."""
    given = {name: value for name, value in request.given.items() if name not in STRUCTURAL}
    if request.parameters:
        given["parameters"] = dict(request.parameters)
    try:
        return json.dumps(given, default=_plain, sort_keys=True)
    except TypeError:
        return None


def _plain(value: Any) -> Any:
    """Convert numbers of other libraries to plain ones."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError


def _build(asked: FrameJoin, how: JoinType, options: str | None, selected: list[tuple[int, str]]) -> DataFrame | None:
    """Columns of the join of both DataFrames, on the condition as Spark parses it. None if that is not possible."""
    left, right = asked.request.input_list
    spark = left.sparkSession
    called = joined_names(left.columns, right.columns)
    condition = [F.expr(spark_sql(conjunct, called)) for conjunct in asked.bound.written]
    places, names = [place for place, _ in selected], [name for _, name in selected]
    try:
        filtered = by_position(left.crossJoin(right)).where(reduce(and_, condition))
    except PySparkException:  # Spark parses the condition differently
        return None
    marked = _marked_joins(spark)
    plan = marked.build(_plan_of(filtered), str(how), options, places, names)
    if plan is None or (options is not None and not _can_be_read_again(asked, str(marked.writtenText(plan)))):
        return None
    return _frame(spark, plan)


def _can_be_read_again(asked: FrameJoin, text: str) -> bool:
    """Whether Spark's text of the condition, including its own functions, can be parsed like a user's condition."""
    if not any(map(is_opaque, asked.bound.written)):
        return True
    left, right = map(by_position, asked.request.input_list)
    try:
        bind_frames(text, left, right, trusted=True)
    except (ConditionError, PySparkException):
        return False
    return True


def _frame(spark: SparkSession, plan: Any) -> DataFrame:
    jvm: Any = spark._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def _plan_of(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


# In Spark.


def _marked_joins(spark: SparkSession) -> Any:
    """The Java object whose joins the session runs from now on. None if Java cannot load its class."""
    gateway: Any = spark.sparkContext._gateway
    if gateway not in _made:
        try:
            _made[gateway] = make_object(spark, "MarkedJoins")
        except DovetailError as error:
            log.warning("joins are planned at the call, and not as a part of queries: %s", error)
            _made[gateway] = None
    marked = _made[gateway]
    if marked is not None and not marked.isIn(spark._jsparkSession):
        marked.install(spark._jsparkSession, Runner(spark, marked))
    return marked


class Runner(JavaFunction):
    """Runs marked joins when Spark executes them."""

    def __init__(self, spark: SparkSession, marked: Any) -> None:
        self._spark = spark
        self._marked = marked  # the counterpart in Java

    def apply(self, given: Any) -> Any:
        """An RDD of Spark's internal rows, or the error for Java to throw."""
        session, join, counted, columns, options = (given.get(place) for place in range(5))  # calls to Java are slow
        try:
            with safe_interrupts(self._spark):
                make = self._counted if counted else self._joined
                return make(join, columns, options, python_session(self._spark, session))._jdf.queryExecution().toRdd()
        except Py4JJavaError as error:
            return error.java_exception
        except PySparkException as error:
            return getattr(error, "_origin", None) or self._error("RuntimeException", str(error))
        except DovetailError as error:
            return self._error("IllegalArgumentException", f"{type(error).__name__}: {error}")
        except BaseException:
            return self._error("RuntimeException", traceback.format_exc())

    def _joined(self, join: Any, columns: Any, options: str, spark: SparkSession) -> DataFrame:
        """Some columns of a join. If Spark has changed its condition, Spark runs the join."""
        try:
            return self._planned(join, columns, json.loads(options), spark)
        except (AnalysisException, ConditionError) as error:
            warnings.warn(f"Spark runs a join that Dovetail was to run: {error}", RuntimeWarning, stacklevel=2)
        joined = by_position(_frame(spark, self._marked.leaveToSpark(join)))
        return joined.select(*(joined.columns[place] for place in places(self._marked, join, columns)))

    def _counted(self, join: Any, columns: Any, options: str, spark: SparkSession) -> DataFrame:
        """Numbers that add up to the number of rows of a join."""
        try:
            request = self._request(join, json.loads(options), spark)
        except (AnalysisException, ConditionError):
            return rows_of(self._joined(join, columns, options, spark))
        return joins.count_rows(request)

    def _planned(self, join: Any, columns: Any, options: dict[str, Any], spark: SparkSession) -> DataFrame:
        request = only_columns(self._marked, self._request(join, options, spark), join, columns)
        joined = joins.join_dataframes(request)
        check_types(self._marked, joined, columns)
        return joined

    def _request(self, join: Any, options: dict[str, Any], spark: SparkSession) -> Request:
        """The join as a call of `dovetail.join`."""
        left, right = (by_position(self._input(plan, spark)) for plan in (join.left(), join.right()))
        session: Any = spark._jsparkSession
        on, how = condition_text(self._marked, session, join), str(self._marked.how(join))
        arguments = {"left": left, "right": right, "on": on, "how": how, **options, "trusted": True}
        parameters = options.get("parameters", {})
        return Request.read("join", arguments, lambda: parameters)

    def _input(self, plan: Any, spark: SparkSession) -> DataFrame:
        """An input as a DataFrame in which marked joins are planned: once, for both the sample and the join."""
        nested = self._marked.nested(plan)
        for number in range(nested.size()):
            place, join, columns, options = nested.get(number)
            plan = self._marked.replace(plan, place, _plan_of(self._joined(join, columns, options, spark)))
        return _frame(spark, plan)

    def _error(self, kind: str, message: str) -> Any:
        jvm: Any = self._spark._jvm
        return getattr(jvm.java.lang, kind)(message)
