"""As-of joins with Spark's own operators: both sides sorted together, and the last right row seen.

    left rows   -----------------------\\
    right rows  ------------------------- union --> one shuffle, by key --> sorted by time --> the last right row seen
    right rows at the ends of ranges --/

Keys with far more rows than others, or all rows if there is no key, are divided into ranges of time. A range does not
see the right rows of other ranges, so the last right row before it (for later partners, the first one after it) is
added to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from dovetail.condition import Column, Condition, closed_bounds, columns_of, spark_sql
from dovetail.condition.best import Best
from dovetail.condition.expression import type_of
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.matching.nearest_in_order import Direction, InOrder, read_order
from dovetail.planning.kernel_plans import SPARK
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.spark.batch.tables import contents
from dovetail.spark.best.ranges import Cuts, find_cuts, sample_by_spark, sample_files
from dovetail.spark.frames.binding import Bound, after_join
from dovetail.spark.frames.planned import FrameJoin, Planned
from dovetail.spark.frames.renaming import position_name, renamed
from dovetail.spark.frames.schemas import result_fields

t = pa.types

SALT = 1 << 10  # cells for left rows that cannot have a partner
WHY = "as-of by Spark's own operators: both sides in one order of time, and the last right row seen"


class Times(NamedTuple):
    """The compared times, the direction of the partner, whether equal times match, and what partners must satisfy."""

    order: InOrder
    strict: bool

    @property
    def ways(self) -> tuple[Direction, ...]:
        return ("before", "after") if self.order.direction == "both" else (self.order.direction,)


def read_times(condition: Condition, best: Best) -> Times | None:
    """The inputs of such a plan. None if the join is of another kind."""
    order = read_order(condition, best)
    if order is None or any(t.is_nested(type_of(e)) for p in condition.equalities for e in (p.left, p.right)):
        return None
    type_ = type_of(order.values[0])
    if t.is_nested(type_) or (t.is_floating(type_) and order.differs and not best.is_distance):
        return None  # NaN and infinity are partners by distance
    if order.band is None:
        return Times(order, order.strict)
    band, (low, high) = order.band, closed_bounds(order.band)
    if order.direction == "both":
        return Times(order, strict=False) if low == -high else None
    if not t.is_floating(type_):  # bounds of integers are inclusive
        low, high = low - (not band.low_closed), high + (not band.high_closed)
    if order.direction == "before":
        return Times(order, not band.low_closed) if low == 0 else None
    return Times(order, not band.high_closed) if high == 0 else None


def plan_asof(asked: FrameJoin, plan: JoinPlan, best: Best, times: Times) -> Planned:
    """The plan. A sample determines where to divide time, unless sampling is off."""
    join = _AsOf(asked, plan.how, times, best.is_distance)
    cuts = None
    if asked.request.sample:
        cuts = find_cuts(join.sample(), join.keys, asked.bound.frames[Side.LEFT])
    plan = replace(plan, operator=Choice(SPARK, WHY), at_rest=False)
    if cuts is not None:
        plan = replace(plan, router=Choice("ranges", cuts.text), cells=cuts.ranges, tasks=cuts.ranges)
    return Planned(plan, lambda: join.frame(cuts))


class _AsOf:
    """The inputs with their keys and times, and the steps of the plan."""

    def __init__(self, asked: FrameJoin, how: JoinType, times: Times, is_distance: bool) -> None:
        self._asked, self._how, self._times = asked, how, times
        self._bound = asked.bound
        self._only_finite = is_distance and t.is_floating(type_of(times.order.values[0]))
        self.keys = [f"key{number}" for number in range(len(asked.bound.condition.equalities))]
        self._own = [len(asked.bound.visible(side)) for side in Side]

    def sample(self) -> pa.Table:
        """Keys and times of a sample of both sides."""
        values = [(pair.left, pair.right) for pair in self._bound.condition.equalities]
        sample = sample_files(self._bound, [*self.keys, "time"], [*values, self._times.order.values])
        if sample is None:
            left, right = (self.usable(side).select(*self.keys, "time") for side in Side)
            sample = sample_by_spark(left.unionAll(right), self.keys)
        return sample

    def usable(self, side: Side) -> DataFrame:
        """The rows of a side that can have a partner."""
        return self._keyed(side).where("usable")

    def _keyed(self, side: Side) -> DataFrame:
        """The rows of a side with keys, time, and a flag whether they can have a partner."""
        condition, frame = self._bound.condition, self._bound.frames[side]
        name = _positions(self._bound, side)
        pairs = [(p.left, p.right) for p in condition.equalities]
        keys = [F.expr(spark_sql(pair[side], name)).alias(key) for pair, key in zip(pairs, self.keys, strict=True)]
        time = F.expr(spark_sql(self._times.order.values[side], name))
        if t.is_floating(type_of(self._times.order.values[side])):
            time = time + F.lit(0.0)  # turns -0.0 into 0.0
        passing = [F.coalesce(F.expr(spark_sql(part, name)), F.lit(False)) for part in condition.filters[side]]
        frame = frame.select("*", *keys, time.alias("time"))
        known = [F.col(column).isNotNull() for column in (*self.keys, "time")]
        if self._only_finite:
            known.append(F.coalesce(F.abs("time") < F.lit(float("inf")), F.lit(False)))
        return frame.withColumn("usable", reduce(SparkColumn.__and__, [*known, *passing]))

    def frame(self, cuts: Cuts | None) -> DataFrame:
        left, right = self._left(cuts), self._right(cuts)
        if cuts is not None:
            for way in self._times.ways:
                right = right.unionByName(self._carried(self._right(cuts), cuts, way))
        rows = left.unionByName(right, allowMissingColumns=True)
        before_left = F.col("is_left").desc() if self._times.strict else F.col("is_left").asc()
        seen = []
        for way in self._times.ways:
            time = F.col("time").asc() if way == "before" else F.col("time").desc()
            window = Window.partitionBy(*self.keys, "cut").orderBy(time, before_left)
            until_now = window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
            rows = rows.withColumn(way, F.last("mate", ignorenulls=True).over(until_now))
            seen.append(way)
        rows = rows.where("is_left").withColumns({column: F.col(name) for column, name in self._twice().items()})
        rows = rows.withColumn("found", F.col(seen[0]) if len(seen) == 1 else _nearer())
        if self._times.order.band is not None:
            rows = rows.withColumn("found", F.when(self._is_near(), F.col("found")))
        if self._how is JoinType.INNER:
            rows = rows.where(F.col("found").isNotNull())
        mine = [F.col(position_name(n)) for n in range(self._own[0])]
        theirs = [F.col(f"found.{position_name(n)}").alias(f"r{n}") for n in range(self._own[1])]
        fields = result_fields(self._asked.inputs, self._asked.output)
        return after_join(renamed(rows.select(*mine, *theirs), self._asked.output.names), self._bound, fields)

    def _left(self, cuts: Cuts | None) -> DataFrame:
        rows, cut = self._keyed(Side.LEFT), _cut(cuts)
        if self._how is JoinType.INNER:
            rows = rows.where("usable")
        else:  # rows without a key or a time would all be in one task
            salt = F.lit(-1) - F.pmod(F.xxhash64(*contents(self._bound.frames[Side.LEFT])), F.lit(SALT)).cast("int")
            cut = F.when(F.col("usable"), cut).otherwise(salt)
        twice = self._twice()
        columns = [name for name in self._bound.frames[Side.LEFT].columns if name not in twice]
        return rows.select(*columns, *self.keys, "time", cut.alias("cut"), F.lit(True).alias("is_left"))

    def _twice(self) -> dict[str, str]:
        """Left columns that are plain keys or times, and are sent only once."""
        name = _positions(self._bound, Side.LEFT)
        pairs = zip((p.left for p in self._bound.condition.equalities), self.keys, strict=True)
        found = {name(one): key for one, key in pairs if isinstance(one, Column)}
        time = self._times.order.values[0]
        if isinstance(time, Column) and not t.is_floating(type_of(time)):
            found[name(time)] = "time"
        return found

    def _right(self, cuts: Cuts | None) -> DataFrame:
        """The right rows as structs of the columns that the result or a check reads."""
        checked = [] if self._times.order.band is None else self._times.order.band.source
        name = _positions(self._bound, Side.RIGHT)
        read = {name(c) for part in checked for c in columns_of(part) if c.side is Side.RIGHT}
        wanted = dict.fromkeys([*(position_name(n) for n in range(self._own[1])), *sorted(read)])
        mate = [*wanted, *(["time"] if len(self._times.ways) > 1 else [])] or ["time"]
        return self.usable(Side.RIGHT).select(
            *self.keys, "time", _cut(cuts).alias("cut"), F.lit(False).alias("is_left"), F.struct(*mate).alias("mate")
        )

    def _carried(self, right: DataFrame, cuts: Cuts, way: Direction) -> DataFrame:
        """The last right row of each range, carried into the ranges after it, up to one that has a right row of its
        own.

        For later partners, the first right row, carried into the ranges before it.
        """
        cut = [*self.keys, "cut"]
        heavy = right.where(cuts.heavy)
        ends = heavy.groupBy(*cut).agg((F.max if way == "before" else F.min)("time").alias("time"))
        beside = Window.partitionBy(*self.keys) if self.keys else Window.partitionBy(F.lit(0))
        if way == "before":
            first, last = (
                F.col("cut") + 1,
                F.coalesce(F.lead("cut").over(beside.orderBy("cut")), F.lit(cuts.ranges - 1)),
            )
        else:
            first, last = F.coalesce(F.lag("cut").over(beside.orderBy("cut")), F.lit(0)), F.col("cut") - 1
        ends = ends.withColumns({"first": first, "last": last}).where("first <= last")
        rows = heavy.join(F.broadcast(ends), [*cut, "time"])
        one = rows.groupBy(*cut).agg(
            *(F.first(column).alias(column) for column in ("time", "is_left", "mate", "first", "last"))
        )
        targets = F.explode(F.sequence("first", "last")).alias("cut")
        return one.select(*self.keys, "time", targets, "is_left", "mate")

    def _is_near(self) -> SparkColumn:
        band = self._times.order.band
        assert band is not None
        left, right = _positions(self._bound, Side.LEFT), _positions(self._bound, Side.RIGHT)

        def name(column: Column) -> str:
            return left(column) if column.side is Side.LEFT else f"found.{right(column)}"

        return reduce(SparkColumn.__and__, [F.expr(spark_sql(part, name)) for part in band.source])


def _positions(bound: Bound, side: Side) -> Callable[[Column], str]:
    names = bound.condition.schema(side).names
    return lambda column: position_name(names.index(column.name))


def _cut(cuts: Cuts | None) -> SparkColumn:
    return F.lit(0) if cuts is None else F.expr(cuts.number)


def _nearer() -> SparkColumn:
    """The one of both whose time is nearer; the earlier one in a tie. A difference that overflows counts as larger."""
    back, ahead = F.try_subtract("time", "before.time"), F.try_subtract("after.time", "time")
    return (
        F.when(F.col("before").isNull(), F.col("after"))
        .when(F.col("after").isNull(), F.col("before"))
        .when(back.isNull(), F.col("after"))
        .when(ahead.isNull() | (back <= ahead), F.col("before"))
        .otherwise(F.col("after"))
    )
