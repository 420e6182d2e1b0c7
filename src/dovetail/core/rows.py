"""Sides, events, and pairs of rows: the vocabulary that every layer speaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def pieces_of(counts: NDArray[np.int64], total: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Consecutive rows (start, end, pairs) with at most `most` pairs each; more only where a single row has more."""
    if total == 0:
        return
    if total <= most:
        yield 0, len(counts), total
        return
    ends = np.cumsum(counts)
    start, done = 0, 0
    while done < total:
        end = int(np.searchsorted(ends, done + most, side="right"))
        end = max(end, start + 1)
        reached = int(ends[end - 1])
        if reached > done:
            yield start, end, reached - done
        start, done = end, reached


Rows = NDArray[Any]
"""Row positions inside a record batch: int32 where all of them fit, else int64."""


INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
PLAIN = frozenset([*INTEGERS, pa.float32(), pa.float64()])
"""Types whose Arrow buffers are NumPy arrays."""


class Side(IntEnum):
    """Which input a row belongs to. The value indexes per-side state: `state[side]`."""

    LEFT = 0
    RIGHT = 1

    @property
    def other(self) -> Side:
        return Side.LEFT if self is Side.RIGHT else Side.RIGHT

    @property
    def alias(self) -> str:
        """The name that conditions use for this side."""
        return "lr"[self]


class Phase(StrEnum):
    """What a join is busy with."""

    ARRIVING = "arriving"
    REACTIVE = "reactive"
    CLEANUP = "cleanup"


class Pairs(NamedTuple):
    """Matching rows by position: `left[left_rows[i]]` joins `right[right_rows[i]]`."""

    left: pa.RecordBatch
    left_rows: Rows
    right: pa.RecordBatch
    right_rows: Rows

    @property
    def size(self) -> int:
        """How many pairs there are."""
        return len(self.left_rows)

    @classmethod
    def none(cls, schemas: tuple[pa.Schema, pa.Schema]) -> Pairs:
        """No pairs: what a unit of work yields when it found nothing."""
        left, right = (empty_batch(schema) for schema in schemas)
        return cls(left, np.empty(0, np.int64), right, np.empty(0, np.int64))

    @classmethod
    def oriented(
        cls, side: Side, mine: pa.RecordBatch, my_rows: Rows, theirs: pa.RecordBatch, their_rows: Rows
    ) -> Pairs:
        """Pairs found from one side's point of view, put the right way round."""
        if side is Side.LEFT:
            return cls(mine, my_rows, theirs, their_rows)
        return cls(theirs, their_rows, mine, my_rows)


class Alone(NamedTuple):
    """Rows of one side that are results by themselves: `batch[rows[i]]`, without a partner or because they have one."""

    side: Side
    batch: pa.RecordBatch
    rows: Rows

    @property
    def size(self) -> int:
        return len(self.rows)


Results = Pairs | Alone


# Events: what a source can do. A schedule is a sequence of these, so that a run can be replayed.


@dataclass(frozen=True, slots=True)
class Arrival:
    side: Side
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing arrives for as long as `steps` units of reactive work take (None: until the work is done).

    `over` is asked after each unit whether to break off, because rows have arrived after all.
    """

    steps: int | None = None
    over: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True)
class Watermark:
    """No row older than `value` arrives any more."""

    value: int


@dataclass(frozen=True, slots=True)
class End:
    side: Side


Event = Arrival | Stall | Watermark | End


def take_rows(batch: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    """The rows at these positions."""
    if batch.num_columns == 0:  # such a batch still has a number of rows
        return batch.take(pa.array(rows))
    return pa.RecordBatch.from_arrays(take_columns(batch, rows), schema=batch.schema)


def take_columns(batch: pa.RecordBatch, rows: Rows) -> list[pa.Array]:
    """The columns of the rows at these positions.

    Plain numbers go through NumPy, which costs less per call than Arrow's kernels.
    """
    positions = None
    columns = []
    for column in batch.columns:
        if column.null_count == 0 and column.type in PLAIN:
            taken = np.asarray(column)[rows]
            columns.append(pa.Array.from_buffers(column.type, len(rows), [None, pa.py_buffer(taken)]))
        else:
            if positions is None:
                positions = pa.array(rows)
            columns.append(column.take(positions))
    return columns


def slices(batch: pa.RecordBatch, most_rows: int) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of at most `most_rows` rows, without copying."""
    for start in range(0, batch.num_rows, most_rows):
        yield batch.slice(start, most_rows)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """No rows. Unlike `pa.array`, `pa.nulls` knows every type: unions, encodings, dictionaries of anything."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def one_batch(table: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """All rows as a single record batch."""
    batches = table.to_batches() if isinstance(table, pa.Table) else list(table)
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return empty_batch(schema)
    return pa.concat_batches(batches)


class Tuples(NamedTuple):
    """Matching rows by position: the i-th result has row `rows[alias][i]` of `batches[alias]` for every alias."""

    batches: Mapping[str, pa.RecordBatch]
    rows: Mapping[str, Rows]

    @property
    def size(self) -> int:
        return len(next(iter(self.rows.values())))

    @classmethod
    def none(cls, schemas: Mapping[str, pa.Schema]) -> Tuples:
        """No results: what a unit of work yields when it found nothing."""
        batches = {alias: empty_batch(schema) for alias, schema in schemas.items()}
        return cls(batches, {alias: np.empty(0, np.int64) for alias in schemas})


@dataclass(frozen=True, slots=True)
class ArrivalOf:
    """Rows of the input of that alias."""

    alias: str
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class EndOf:
    alias: str


MultiEvent = ArrivalOf | EndOf | Stall
