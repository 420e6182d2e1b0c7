"""Rows, results and events: the vocabulary that every layer speaks.

An input is its position, counted from 0; `Side.LEFT` and `Side.RIGHT` name the two of an ordinary join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Rows = NDArray[Any]
"""Row positions inside a record batch: int32 where all of them fit, else int64."""


INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
PLAIN = frozenset(type_.id for type_ in (*INTEGERS, pa.float32(), pa.float64()))
"""Types whose Arrow buffers are NumPy arrays, by number: types that are defined in Python have no hash."""
OFFSETS = {
    **dict.fromkeys((pa.string().id, pa.binary().id), np.int32),
    **dict.fromkeys((pa.large_string().id, pa.large_binary().id), np.int64),
}
"""How strings of a type, by number, are told where they begin."""


class Side(IntEnum):
    """The inputs of a join of two. The value is the input's position and indexes per-input state: `state[side]`."""

    LEFT = 0
    RIGHT = 1

    @cached_property
    def other(self) -> Side:
        return Side.LEFT if self is Side.RIGHT else Side.RIGHT

    @cached_property
    def alias(self) -> str:
        """The name that conditions use for this side."""
        return "lr"[self]


class Phase(StrEnum):
    """What a join is busy with."""

    ARRIVING = "arriving"
    REACTIVE = "reactive"
    CLEANUP = "cleanup"


class Matches(NamedTuple):
    """Results by row number: result i has row `rows[n][i]` of `batches[n]` for every input n.

    An input is None where no row of it belongs to these results: outer joins pad its columns with nulls, semi and anti
    joins have none of them.
    """

    batches: tuple[pa.RecordBatch | None, ...]
    rows: tuple[Rows | None, ...]

    @property
    def size(self) -> int:
        """How many results there are."""
        first = self.rows[0]
        return len(first) if first is not None else next(len(rows) for rows in self.rows if rows is not None)

    @property
    def is_complete(self) -> bool:
        """Whether every input has a row in each result."""
        return all(rows is not None for rows in self.rows)

    @classmethod
    def pairs(cls, left: pa.RecordBatch, left_rows: Rows, right: pa.RecordBatch, right_rows: Rows) -> Matches:
        """Matching rows of two inputs."""
        return cls((left, right), (left_rows, right_rows))

    @classmethod
    def oriented(
        cls, side: Side, mine: pa.RecordBatch, my_rows: Rows, theirs: pa.RecordBatch, their_rows: Rows
    ) -> Matches:
        """Pairs found by one side's probe, as left and right rows."""
        if side is Side.LEFT:
            return cls((mine, theirs), (my_rows, their_rows))
        return cls((theirs, mine), (their_rows, my_rows))

    @classmethod
    def single(cls, side: Side, batch: pa.RecordBatch, rows: Rows) -> Matches:
        """Rows of one of two inputs that are results by themselves: without a partner, or because they have one."""
        if side is Side.LEFT:
            return cls((batch, None), (rows, None))
        return cls((None, batch), (None, rows))

    @classmethod
    def none(cls, schemas: Sequence[pa.Schema]) -> Matches:
        """No results: yielded by a unit of work without matches."""
        batches = tuple(empty_batch(schema) for schema in schemas)
        return cls(batches, tuple(np.empty(0, np.int64) for _ in schemas))

    def only(self, chosen: NDArray[np.bool_]) -> Matches:
        """Some of the results."""
        return self._replace(rows=tuple(None if rows is None else rows[chosen] for rows in self.rows))

    # The two inputs of an ordinary join.

    @property
    def left(self) -> pa.RecordBatch:
        return self.batches[Side.LEFT]

    @property
    def right(self) -> pa.RecordBatch:
        return self.batches[Side.RIGHT]

    @property
    def left_rows(self) -> Rows:
        rows = self.rows[Side.LEFT]
        assert rows is not None
        return rows

    @property
    def right_rows(self) -> Rows:
        rows = self.rows[Side.RIGHT]
        assert rows is not None
        return rows


# Events: what a source can do. A schedule is a sequence of these, so that a run can be replayed.


@dataclass(frozen=True, slots=True)
class Arrival:
    """Rows of an input. `placement`: where they are among all arrivals, for an operator that sees some of them only."""

    input: int
    batch: pa.RecordBatch
    placement: Any = None


@dataclass(frozen=True, slots=True)
class Stall:
    """No rows arrive for as long as `steps` units of reactive work take (None: until the work is done).

    `over` is asked after each unit whether to break off, because rows have arrived after all. A short stall is a gap
    between two batches as far as one can tell; people are not told of it.
    """

    steps: int | None = None
    over: Callable[[], bool] | None = None
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Watermark:
    """No row older than `value` arrives any more. `arrived`: how many rows of each side have arrived anywhere."""

    value: int
    arrived: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class End:
    """An input has no more rows."""

    input: int


Event = Arrival | Stall | Watermark | End


def take_rows(batch: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    """The rows at these positions."""
    return put_together(take_columns(batch, rows), batch.schema, len(rows))


def put_together(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """The columns as a batch. Without columns it still has a number of rows, which Arrow takes from the columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.record_batch([pa.nulls(rows)], [""]).select([]).replace_schema_metadata(schema.metadata)


def take_columns(batch: pa.RecordBatch, rows: Rows) -> list[pa.Array]:
    """The columns of the rows at these positions.

    Plain numbers go through NumPy, which costs less per call than Arrow's kernels.
    """
    positions = None
    columns = []
    for column in batch.columns:
        if column.null_count == 0 and column.type.id in PLAIN:
            taken = np.asarray(column).take(rows)  # indexing would make wide copies of narrow rows
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


def table_batches(
    table: pa.Table, start: int = 0, size: int | None = None, most_rows: int | None = None
) -> list[pa.RecordBatch]:
    """The rows of a table from one on, without copying. Arrow's slice of a table without columns has all its rows."""
    if table.num_columns:
        return list(table.slice(start, size).to_batches(max_chunksize=most_rows))
    rows = min(table.num_rows - start, table.num_rows if size is None else size)
    return list(slices(put_together([], table.schema, rows), most_rows or max(1, rows)))


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


FINER = 8  # parts for each thread, so that all end at about the same time
LEAST_PART = 1 << 14  # pairs that are worth a task of their own
GOOD_PART = 1 << 17  # pairs that fill memory of a good size: small pieces of new memory cost more than they hold


def part_ranges(counts: NDArray[np.int64], parts: int) -> Iterator[tuple[int, int, int]]:
    """Consecutive rows (start, end, pairs) in parts of about as many pairs each; fewer parts, if there are few."""
    total = int(counts.sum())
    each, of_a_thread = -(-total // parts), -(-total * FINER // parts)
    return chunk_ranges(counts, total, max(LEAST_PART, each, min(GOOD_PART, of_a_thread)))


def chunk_ranges(counts: NDArray[np.int64], total: int, most: int) -> Iterator[tuple[int, int, int]]:
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
