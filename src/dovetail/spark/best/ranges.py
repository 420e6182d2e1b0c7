"""Divides time into ranges: heavy keys, and inputs without keys, are joined range by range.

A sample of both sides shows which keys are heavy and how their rows are distributed. Rows with equal times are in the
same range. Plain Parquet files are sampled by the driver, other inputs by a Spark job.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dovetail.condition import Expression, Literal, columns_of, evaluate, is_opaque, spark_sql, types
from dovetail.core.rows import Side
from dovetail.spark.exchange.packing import as_planned
from dovetail.spark.frames.binding import Bound
from dovetail.spark.frames.file_rows import FileRows, plain_files
from dovetail.spark.frames.sampling import READ_HERE
from dovetail.spark.session.settings import parallelism, shuffle_partitions

t = pa.types

SAMPLE = 1 << 12  # rows of both sides
ENOUGH = 0.9  # share of SAMPLE: inputs with a smaller sample are not divided
HEAVY = 1.25  # share of one core's work: dividing a key with fewer rows costs more than it saves
FEWEST = 20  # a key counts as heavy only if it is at least this often in a sample
MOST_HEAVY = 64
MOST_RANGES = 64  # the expression that compares a time with all borders must stay small enough to be compiled
SEED = 1
IN_TASK = (1 << 33) - 1  # the bits of Spark's row numbers that count within a task


class Cuts(NamedTuple):
    """Which rows are divided, as SQL over the keys, and the ascending borders of time as SQL."""

    heavy: str
    keys: int  # number of heavy keys; 0: there are no keys
    borders: tuple[str, ...]

    @property
    def ranges(self) -> int:
        return len(self.borders) + 1

    @property
    def number(self) -> str:
        """SQL for the range of a row. 0 if its key is not divided."""
        tree = _search(self.borders, 0)
        return f"CASE WHEN {self.heavy} THEN {tree} ELSE 0 END" if self.keys else tree

    @property
    def text(self) -> str:
        of = f" for {self.keys} heavy keys" if self.keys > 1 else " for one heavy key" if self.keys else ""
        return f"time is cut into {self.ranges} ranges{of}; the last right row of a range is carried into the next ones"


def _search(borders: Sequence[str], first: int) -> str:
    """SQL for the number of borders at or before the time."""
    if not borders:
        return str(first)
    middle = len(borders) // 2
    below, above = _search(borders[:middle], first), _search(borders[middle + 1 :], first + middle + 1)
    return f"IF(time < {borders[middle]}, {below}, {above})"


def sample_by_spark(rows: DataFrame, keys: Sequence[str]) -> pa.Table:
    """Keys and times of a sample of both sides, by a job."""
    return _sample(rows.select(*keys, "time")).toArrow()


def sample_files(
    bound: Bound, names: Sequence[str], values: Sequence[tuple[Expression, Expression]]
) -> pa.Table | None:
    """The same for plain Parquet files, read here. None if only Spark can read them.

    `values`: the keys, then the times, of both sides.
    """
    if any(is_opaque(value) for pair in values for value in pair):
        return None
    left, right = plain_files(bound.frames)
    if left is None or right is None:
        return None
    tables = []
    for side, files in zip(Side, (left, right), strict=True):
        rows = -(-SAMPLE * files.rows.rows // (left.rows.rows + right.rows.rows))
        batches = _drawn(files, bound, side, [pair[side] for pair in values], names, rows)
        if batches is None:
            return None
        tables.append(pa.Table.from_batches(batches))
    return pa.concat_tables(tables).drop_null() if tables[0].schema == tables[1].schema else None


def _drawn(
    files: FileRows, bound: Bound, side: Side, values: Sequence[Expression], names: Sequence[str], rows: int
) -> list[pa.RecordBatch] | None:
    """Values of about this many rows at random positions. None if that is too many bytes to read."""
    read = {column.name for value in values for column in columns_of(value)}
    schema = pa.schema([field for field in bound.condition.schema(side) if field.name in read])
    called = dict(zip(bound.condition.schema(side).names, bound.frames[side].columns, strict=True))
    columns = [called[name] for name in schema.names]
    if not columns or files.bytes_of(columns) > READ_HERE:
        return None
    places = np.unique(np.random.default_rng(SEED).integers(0, files.rows.rows, rows))
    found, first = [], 0
    for batch in files.batches(columns):
        here = places[np.searchsorted(places, first) : np.searchsorted(places, first + batch.num_rows)]
        drawn = as_planned(batch.take(pa.array(here - first)), schema)
        sides = (drawn, None) if side is Side.LEFT else (None, drawn)
        found.append(pa.record_batch([evaluate(value, *sides) for value in values], [*names]))
        first += batch.num_rows
    return found or None


def find_cuts(sample: pa.Table, keys: Sequence[str], rows: DataFrame) -> Cuts | None:
    """Where to divide rows like those of the sample. None: nothing to divide."""
    if sample.num_rows < ENOUGH * SAMPLE or not all(_has_literals(field.type) for field in sample.schema):
        return None
    partitions = shuffle_partitions(rows)
    cores = min(partitions, parallelism(rows.sparkSession))
    times, heavy, largest = sample["time"], "TRUE", sample.num_rows
    number = 0
    if keys:
        values = list(zip(*(sample[key].to_pylist() for key in keys), strict=True))
        texts = [tuple(map(repr, value)) for value in values]  # NaN is not equal to itself
        counts = Counter(texts).most_common(MOST_HEAVY)
        found = {text for text, times in counts if times >= FEWEST and times * cores > HEAVY * sample.num_rows}
        if not found:
            return None
        number, largest = len(found), counts[0][1]
        schema = [sample.schema.field(key).type for key in keys]
        chosen = dict(zip(texts, values, strict=True))
        heavy = " OR ".join(_is_key(keys, chosen[text], schema) for text in sorted(found))
        times = times.filter(pa.array([text in found for text in texts]))
    wanted = min(MOST_RANGES, max(2, math.ceil(largest * partitions / sample.num_rows)))
    ordered = times.take(pc.sort_indices(times))
    places = [place * len(ordered) // wanted for place in range(1, wanted)]
    borders = dict.fromkeys(_literal(ordered[place].as_py(), ordered.type) for place in places)
    return Cuts(heavy, number, tuple(borders))


def _sample(rows: DataFrame) -> DataFrame:
    """The rows with the smallest random numbers: a uniform sample.

    Only a few rows are sorted. Before the row at position p of a task, about p * draw others have a smaller number: at
    twice SAMPLE, the row is almost certainly not among the smallest.
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
