"""Where time is cut: keys with far more rows than others, and inputs without keys, are joined range by range.

A sample of both sides says which keys are heavy and where their rows lie. Rows with equal times share a range.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.condition import Literal, spark_sql, types
from dovetail.spark.session.settings import parallelism, shuffle_partitions

t = pa.types

SAMPLE = 1 << 12  # rows of both sides; fewer need no cuts
HEAVY = 0.5  # of what one core has to do: a key with more rows is cut
FEWEST = 20  # times a key must be in a sample to be believed heavy
MOST_HEAVY = 64
MOST_RANGES = 64  # what compares a time with all borders must stay small enough to be compiled
SEED = 1
IN_TASK = (1 << 33) - 1  # the part of Spark's row numbers that counts within a task


class Cuts(NamedTuple):
    """Which rows are cut, as SQL over the keys, and borders of time as SQL, ascending."""

    heavy: str
    keys: int  # how many are heavy; 0: there are no keys
    borders: tuple[str, ...]

    @property
    def ranges(self) -> int:
        return len(self.borders) + 1

    @property
    def number(self) -> str:
        """SQL for the range of a row; 0 where its key is not cut."""
        tree = _search(self.borders, 0)
        return f"CASE WHEN {self.heavy} THEN {tree} ELSE 0 END" if self.keys else tree

    @property
    def text(self) -> str:
        of = f" for {self.keys} heavy keys" if self.keys > 1 else " for one heavy key" if self.keys else ""
        return f"time is cut into {self.ranges} ranges{of}; the last right row of a range is carried into the next ones"


def _search(borders: Sequence[str], first: int) -> str:
    """How many borders are not above the time."""
    if not borders:
        return str(first)
    middle = len(borders) // 2
    below, above = _search(borders[:middle], first), _search(borders[middle + 1 :], first + middle + 1)
    return f"IF(time < {borders[middle]}, {below}, {above})"


def find_cuts(rows: DataFrame, keys: Sequence[str]) -> Cuts | None:
    """By a sample of the keys and times of both sides, one job. None: there is nothing to cut."""
    sample = _sample(rows.select(*keys, "time")).toArrow()
    if sample.num_rows < SAMPLE or not all(_has_literals(field.type) for field in sample.schema):
        return None
    partitions = shuffle_partitions(rows)
    cores = min(partitions, parallelism(rows.sparkSession))
    times, heavy, largest = sample["time"], "TRUE", SAMPLE
    number = 0
    if keys:
        values = list(zip(*(sample[key].to_pylist() for key in keys), strict=True))
        texts = [tuple(map(repr, value)) for value in values]  # NaN is not equal to itself
        counts = Counter(texts).most_common(MOST_HEAVY)
        found = {text for text, times in counts if times >= FEWEST and times * cores > HEAVY * SAMPLE}
        if not found:
            return None
        number, largest = len(found), counts[0][1]
        schema = [sample.schema.field(key).type for key in keys]
        chosen = dict(zip(texts, values, strict=True))
        heavy = " OR ".join(_is_key(keys, chosen[text], schema) for text in sorted(found))
        times = times.filter(pa.array([text in found for text in texts]))
    wanted = min(MOST_RANGES, max(2, math.ceil(largest * partitions / SAMPLE)))
    ordered = times.take(pc.sort_indices(times))
    places = [place * len(ordered) // wanted for place in range(1, wanted)]
    borders = dict.fromkeys(_literal(ordered[place].as_py(), ordered.type) for place in places)
    return Cuts(heavy, number, tuple(borders))


def _sample(rows: DataFrame) -> DataFrame:
    """The rows with the smallest random numbers, a uniform sample.

    Few rows are sorted. Before the row at place p of a task, about p * draw others have drawn less: at twice SAMPLE, it
    is almost certainly not among the smallest.
    """
    place = F.monotonically_increasing_id().bitwiseAND(F.lit(IN_TASK)) + 1
    numbered = rows.withColumns({"draw": F.rand(SEED), "place": place})
    few = numbered.where(F.col("draw") * F.col("place") < 2 * SAMPLE)
    return few.orderBy("draw").limit(SAMPLE).drop("draw", "place")


def _has_literals(type_: pa.DataType) -> bool:
    return (
        types.is_number(type_)
        or types.is_text(type_)
        or types.is_bytes(type_)
        or t.is_temporal(type_)
        or t.is_boolean(type_)
    )


def _is_key(keys: Sequence[str], values: Sequence[Any], schema: Sequence[pa.DataType]) -> str:
    same = (f"{key} = {_literal(value, type_)}" for key, value, type_ in zip(keys, values, schema, strict=True))
    return f"({' AND '.join(same)})"


def _literal(value: Any, type_: pa.DataType) -> str:
    return spark_sql(Literal(value, type_))
