"""Labels that Spark's hash partitioning maps to a given partition, and repartitioning by partition number."""

from __future__ import annotations

from functools import cache
from itertools import count

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

MASK = 0xFFFFFFFF


def spark_partition(cell: int, partitions: int) -> int:
    """The partition of groupBy(cell) for an int column: Murmur3 (x86, 32 bits, seed 42), modulo `partitions`."""
    k = (cell & MASK) * 0xCC9E2D51 & MASK
    k = ((k << 15 | k >> 17) & MASK) * 0x1B873593 & MASK
    h = 42 ^ k
    h = ((h << 13 | h >> 19) * 5 + 0xE6546B64) & MASK
    h ^= 4  # the length in bytes
    h ^= h >> 16
    h = h * 0x85EBCA6B & MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & MASK
    h ^= h >> 16
    signed = h - (1 << 32) if h >> 31 else h
    return signed % partitions


def spread_labels(cells: int, partitions: int) -> list[int]:
    """One label per cell, such that cells are distributed evenly over partitions."""
    return list(_spread(cells, partitions))


@cache
def _spread(cells: int, partitions: int) -> tuple[int, ...]:
    labels: list[int] = []
    free = [0] * partitions
    candidate = 0
    while len(labels) < cells:
        if not any(free):  # next round: every partition gets one more cell
            free = [1] * partitions
        partition = spark_partition(candidate, partitions)
        if free[partition]:
            free[partition] = 0
            labels.append(candidate)
        candidate += 1
    return tuple(labels)


@cache
def label_of_partition(partition: int, partitions: int) -> int:
    """The smallest label that maps to a partition."""
    return next(label for label in count() if spark_partition(label, partitions) == partition)


def repartition_by_id(frame: DataFrame, partitions: int, number: Column | str) -> DataFrame:
    """Repartition: each row goes to the partition with this number."""
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(partitions, number)
    column = F.col(number) if isinstance(number, str) else number
    labels = F.array(*(F.lit(label_of_partition(partition, partitions)) for partition in range(partitions)))
    return frame.repartition(partitions, F.element_at(labels, (column + 1).cast("int")))
