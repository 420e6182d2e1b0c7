"""Early results along the diagonal: the files of two DataFrames, read by the driver as its window slides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from dovetail.diagonal.choose import Wish, plan_diagonal
from dovetail.runtimes.embedded import Step, join_along_diagonal
from dovetail.spark.binding import bind_frames
from dovetail.spark.diagonal import wanted_scans
from dovetail.spark.options import refuse_unknown


def progressive_diagonal(
    left: DataFrame, right: DataFrame, on: Any, suffix: str, memory_bytes: int | None, given: dict[str, Any]
) -> Iterator[Step]:
    """Steps with results; the first when half a window is read. No Spark job runs."""
    refuse_unknown(given, Wish, "a progressive join along the diagonal")
    bound = bind_frames(on, left, right)
    bound, scans = wanted_scans(bound, (left, right), "inner")
    plan = plan_diagonal(bound.condition, "inner", scans, Wish.of(**given), memory_bytes, look=False)
    return join_along_diagonal(plan, scans, suffix)
