"""Spark's own join, used if only Spark can tell which rows have a partner."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.condition import spark_sql
from dovetail.planning.kernel_plans import SPARK
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.spark.frames.planned import FrameJoin
from dovetail.spark.frames.renaming import by_position, joined_names, renamed


def by_spark(asked: FrameJoin, plan: JoinPlan) -> JoinPlan:
    """The plan, marked to be run by Spark."""
    choice = Choice(SPARK, f"Spark's own join, because only Spark can evaluate {asked.text_after}")
    return replace(plan, operator=choice, at_rest=False)


def join_by_spark(asked: FrameJoin, plan: JoinPlan) -> DataFrame:
    """Spark's own join, on the same condition."""
    left, right = (by_position(frame) for frame in asked.inputs)
    width = len(left.columns)
    right = by_position(right, width)
    names = joined_names(*(frame.columns for frame in asked.inputs))
    conjuncts = [F.expr(spark_sql(conjunct, names)) for conjunct in asked.bound.written]
    return renamed(left.join(right, conjuncts, plan.how), asked.output.names)
