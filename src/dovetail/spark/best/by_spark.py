"""Best partners with Spark's own join and window, if only Spark can evaluate the condition or the order."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from dovetail.condition import columns_of, is_opaque, spark_sql, text_of
from dovetail.condition.best import Best
from dovetail.condition.expression import type_of
from dovetail.planning.kernel_plans import SPARK
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.spark.frames.planned import FrameJoin, Planned
from dovetail.spark.frames.renaming import by_position, joined_names, renamed
from dovetail.spark.frames.schemas import only_spark_compares


def only_spark_knows(asked: FrameJoin, best: Best) -> str:
    """What only Spark can evaluate or compare. Empty if there is nothing."""
    after = [text_of(part) for part in asked.bound.after]
    for key in best.order:
        fields = [asked.inputs[column.side].schema[column.name] for column in columns_of(key.value)]
        if is_opaque(key.value) or any(map(only_spark_compares, fields)):
            after.append(key.text)
    return ", ".join(after)


def plan_best_by_spark(asked: FrameJoin, plan: JoinPlan, best: Best, why: str) -> Planned:
    """Spark computes all pairs, and a window keeps the best."""
    text = f"Spark's own join, and a window over all pairs, because only Spark can evaluate {why}"
    plan = replace(plan, operator=Choice(SPARK, text), at_rest=False)
    return Planned(plan, lambda: _best_of_pairs(asked, plan, best))


def _best_of_pairs(asked: FrameJoin, plan: JoinPlan, best: Best) -> DataFrame:
    left, right = (by_position(frame) for frame in asked.inputs)
    width = len(left.columns)
    right = by_position(right, width)
    names = joined_names(*(frame.columns for frame in asked.inputs))
    conjuncts = [F.expr(spark_sql(conjunct, names)) for conjunct in asked.bound.written]
    keys = [F.expr(spark_sql(key.value, names)) for key in best.order]
    if best.is_distance:
        conjuncts += [_is_finite(value, type_of(key.value)) for value, key in zip(keys, best.order, strict=True)]
    pairs = left.withColumn("row", F.monotonically_increasing_id()).join(right, conjuncts, plan.how)
    ordered = [_in_order(value, key.descending, key.nulls_first) for value, key in zip(keys, best.order, strict=True)]
    place = F.rank() if best.ties == "all" else F.row_number()
    window = Window.partitionBy("row").orderBy(*ordered or [F.col("row")])
    kept = pairs.withColumn("place", place.over(window)).where(F.col("place") <= best.top)
    return renamed(kept.drop("row", "place"), asked.output.names)


def _is_finite(value: SparkColumn, type_: pa.DataType) -> SparkColumn:
    return F.abs(value) < F.lit(float("inf")) if pa.types.is_floating(type_) else value.isNotNull()


def _in_order(value: SparkColumn, descending: bool, nulls_first: bool) -> SparkColumn:
    if descending:
        return value.desc_nulls_first() if nulls_first else value.desc_nulls_last()
    return value.asc_nulls_first() if nulls_first else value.asc_nulls_last()
