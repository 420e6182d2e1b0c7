"""Joins DataFrames without columns, which still have rows: Spark sends no rows to Python if it sends no columns.

They get a column that no condition names, and the result is returned without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.core.rows import Side
from dovetail.execution.steps import Step

MARKS = ("__dovetail_left_row", "__dovetail_right_row")


def with_columns(left: DataFrame, right: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The inputs, each with at least one column."""
    return _with_mark(left, Side.LEFT), _with_mark(right, Side.RIGHT)


def _with_mark(frame: DataFrame, side: Side) -> DataFrame:
    return frame if frame.columns else frame.select(F.lit(True).alias(MARKS[side]))


def without_marks(joined: DataFrame) -> DataFrame:
    """The result without the added columns."""
    return joined.drop(*MARKS) if set(MARKS) & set(joined.columns) else joined


def steps_without_marks(steps: Iterator[Step]) -> Iterator[Step]:
    for step in steps:
        names = step.batch.schema.names
        kept = [name for name in names if name not in MARKS]
        yield step if len(kept) == len(names) else replace(step, batch=step.batch.select(kept))
