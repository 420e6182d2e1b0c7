"""Early results along the diagonal: the files of two DataFrames, read by the driver as its window slides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from dovetail.diagonal.choose import ScanDiagonals, Wish
from dovetail.plan import JoinPlan
from dovetail.planner import DIAG, InputFacts, plan_join
from dovetail.runtimes.embedded import Step, join_along_diagonal
from dovetail.spark.binding import bind_frames
from dovetail.spark.diagonal import Scans, wanted_scans
from dovetail.spark.options import refuse_unknown


def progressive_diagonal(
    left: DataFrame, right: DataFrame, on: Any, how: str, suffix: str, memory_bytes: int | None, given: dict[str, Any]
) -> Iterator[Step]:
    """Steps with results; the first when half a window is read. No Spark job runs."""
    plan, scans = plan_early_diagonal(left, right, on, how, memory_bytes, given)
    return join_along_diagonal(plan, scans, suffix)


def plan_early_diagonal(
    left: DataFrame, right: DataFrame, on: Any, how: str, memory_bytes: int | None, given: dict[str, Any]
) -> tuple[JoinPlan, Scans]:
    refuse_unknown(given, Wish, "a progressive join along the diagonal")
    bound, scans = wanted_scans(bind_frames(on, left, right), (left, right), "inner")
    facts = InputFacts("progressive", on_spark=True, diagonal=ScanDiagonals(scans))
    plan = plan_join(bound.condition, how, facts, algorithm=DIAG, memory_bytes=memory_bytes, parameters=given)
    return plan, scans
