"""What PySpark 4.0 and 4.1 do not have yet, and what stands for it there.

repartitionById             since 4.1     repartition by labels whose hashes give the partitions
geographic types, times     since 4.1     there are no such columns
offsets and limits that
  a stream reader is given  since 4.2     streams of dovetail-flight and dovetail-postgresql are refused
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F  # noqa: N812  everybody's name for it

from dovetail.errors import InputError
from dovetail.spark.exchange.labels import label_of_partition

try:
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_STREAM_OFFSETS = True
except ModuleNotFoundError:
    HAS_STREAM_OFFSETS = False
    ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = type("Missing", (), {})  # type: ignore[misc, assignment]

__all__ = [
    "HAS_STREAM_OFFSETS",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "check_stream_offsets",
    "repartition_by_id",
    "types_named",
]


def types_named(*names: str) -> tuple[type[Any], ...]:
    """Those types of Spark that this version has."""
    return tuple(getattr(types, name) for name in names if hasattr(types, name))


def repartition_by_id(frame: DataFrame, partitions: int, number: Column | str) -> DataFrame:
    """A row goes to the partition of this number."""
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(partitions, number)
    column = F.col(number) if isinstance(number, str) else number
    labels = F.array(*(F.lit(label_of_partition(partition, partitions)) for partition in range(partitions)))
    return frame.repartition(partitions, F.element_at(labels, (column + 1).cast("int")))


def check_stream_offsets() -> None:
    if not HAS_STREAM_OFFSETS:
        raise InputError(
            "streams of dovetail-flight and dovetail-postgresql need PySpark 4.2 or newer, which tells a source where "
            "it stopped. Tables of both can be read."
        )
