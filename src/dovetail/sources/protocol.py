"""The interface between a source and its reader, and the inputs that can be used in place of a source.

Tables, readers and iterators of record batches are accepted as sources. Rows at rest offer more: their number is known,
and they can be read repeatedly, always in the same order (`Scan`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from dovetail.columns.batches import one_batch, table_batches
from dovetail.core.tables import arrow_table, plain_schema, uses_dictionaries
from dovetail.errors import InputError
from dovetail.visible import visible

NOISE = re.compile(r"\.? (Detail: Python exception|gRPC client debug context|Client context):.*")
"""Suffixes that gRPC appends to a server's message."""


def cause_of(error: BaseException, clean: Callable[[str], str] = str) -> str:
    """The first line of an error's message, without a full stop. If it is empty, the kind of error.

    `clean` removes secrets before anything is cut.
    """
    first, *_ = [*clean(str(error)).strip().splitlines(), ""]
    return visible(NOISE.sub("", first).rstrip(". ") or type(error).__name__)


Position = Any
"""Where a source resumes after a failure: a row number, a key, any value that it understands. None is the start."""


class Piece(NamedTuple):
    """Some rows, and the position after them."""

    batch: pa.RecordBatch
    position: Position


class Reading(Protocol):
    """One connection to a source: pieces in order. A generator is one."""

    def __next__(self) -> Piece: ...

    def close(self) -> None:
        """Called from any thread when the reader is closed: a pending `next` should end or fail soon."""


@runtime_checkable
class Source(Protocol):
    """Rows from a remote system that may stall, fail and recover.

    An exception in `open` or `next` counts as a failure, and the source is reopened at the position of the last piece.
    A DovetailError is not retried.
    """

    name: str
    """The name in error messages."""
    resumable: bool
    """Whether `open` can resume at a position, with the same rows in the same order from there on."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""

    def open(self, position: Position = None) -> Reading:
        """Read from the start, or from a position that an earlier reading returned."""


class Ranged(Source, Protocol):
    """A source that can also be read up to a position, so that earlier rows can be replayed."""

    def open(self, position: Position = None, until: Position = None) -> Reading:
        """Read from one position to another. By default from the start, to the end."""


class Local:
    """Batches that can be read only once. They cannot be resumed."""

    resumable = False

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, name: str) -> None:
        self.name = name
        self.schema = schema
        self._batches = batches

    def open(self, position: Position = None) -> Generator[Piece, None, None]:
        try:
            for batch in self._batches:
                yield Piece(_record_batch(batch), None)
                del batch  # freed before the next one is made
        finally:
            close = getattr(self._batches, "close", None)
            if close is not None:
                close()


def as_input(rows: Any) -> pa.Table | Source:
    """A table if the rows are at rest, a source if they are still to come."""
    if isinstance(rows, type) or inspect.isroutine(rows):
        made = getattr(rows, "__name__", "it")
        raise InputError(f"{made} is a {'class' if isinstance(rows, type) else 'function'}: call it, {made}(…).")
    if isinstance(rows, Source):
        return _checked(rows)
    if isinstance(rows, pa.RecordBatchReader):
        return Local(rows, rows.schema, "record batch reader")
    if isinstance(rows, Iterator):
        schema = getattr(rows, "schema", None)
        if not isinstance(schema, pa.Schema):
            raise InputError(
                "an iterator of record batches needs a schema, so that the condition can be checked before the first "
                "row: give pyarrow.RecordBatchReader.from_batches(schema, batches)."
            )
        return Local(rows, schema, "iterator")
    try:
        return arrow_table(rows)
    except InputError:
        _check_whole(rows)
        raise


def _record_batch(given: Any) -> pa.RecordBatch:
    if isinstance(given, pa.RecordBatch):
        return given
    raise InputError(f"an iterator of record batches yielded {_described(given)}")


def _described(given: Any) -> str:
    """What was given instead of a record batch, and how to convert it."""
    advice = {
        pa.Table: "give its batches one by one, table.to_batches()",
        dict: "make a batch of it, pa.RecordBatch.from_pylist([…], schema)",
        list: "make a batch of it, pa.RecordBatch.from_pylist(…, schema)",
    }.get(type(given), "make a pyarrow.RecordBatch of it")
    return f"a {type(given).__name__}, and not a pyarrow.RecordBatch: {advice}."


def check_reading(reading: Any, source: Source) -> Any:
    """Check that `open` returned an iterator of pieces."""
    if hasattr(reading, "__next__"):
        return reading
    raise InputError(
        f"open of {type(source).__name__} must return an iterator of dovetail.sources.Piece, and returned a "
        f"{type(reading).__name__}: write it with yield, or give iter(…)."
    )


def check_piece(piece: Any, source: Source) -> Piece:
    """Check that a reading returned a piece with a record batch."""
    if isinstance(piece, Piece) and isinstance(piece.batch, pa.RecordBatch):
        return piece
    if isinstance(piece, Piece):
        raise InputError(f"a Piece of {type(source).__name__} has {_described(piece.batch)}")
    raise InputError(
        f"open of {type(source).__name__} must yield dovetail.sources.Piece(batch, position), and yielded a "
        f"{type(piece).__name__}: write yield Piece(batch, position)."
    )


def _checked(source: Source) -> Source:
    """The source, after checking that it implements the protocol."""
    opens: Any = source.open
    wrong = [
        f"{name} must be {wanted}; got {getattr(source, name)!r}"
        for name, kind, wanted in (
            ("name", str, "text for errors"),
            ("resumable", bool, "True or False"),
            ("schema", pa.Schema, "a pyarrow.Schema"),
        )
        if not isinstance(getattr(source, name), kind)
    ]
    if not callable(opens):
        wrong.append("open must be a method, open(position=None)")
    elif not _takes_a_position(opens):
        wrong.append("open must take a position: def open(self, position=None)")
    if wrong:
        raise InputError(f"{type(source).__name__}: {'; '.join(wrong)}. See help(dovetail.sources.Source).")
    return source


def _takes_a_position(call: Callable[..., Any]) -> bool:
    try:
        inspect.signature(call).bind(None)
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)  # some callables have no known signature
    return True


def _check_whole(rows: Any) -> None:
    """Raise an error that says what an object lacks to be a source."""
    parts = {"name": "text for errors", "resumable": "True or False", "schema": "a pyarrow.Schema", "open": "a method"}
    missing = [name for name in parts if not hasattr(rows, name)]
    there = [name for name in ("schema", "open", "batches", "resumable") if hasattr(rows, name)]
    if missing and len(there) > 1:
        lacks = ", no ".join(f"{name} ({parts[name]})" for name in missing)
        raise InputError(
            f"{type(rows).__name__} has {' and '.join(there)}, as a source has, but no {lacks}. A source is an object "
            "with name, resumable, schema and open(position): help(dovetail.sources.Source)."
        )


def as_source(rows: pa.Table | Source) -> Source:
    """A table as a source that returns all of its rows immediately."""
    if isinstance(rows, Source):
        return rows
    return Local(rows.to_batches(), rows.schema, "table")


def joined_schema(source: pa.Table | Source) -> pa.Schema:
    """The schema of the rows as the join sees them."""
    return plain_schema(source.schema)


def conform_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly this schema, which may differ from its own only in ways that do not change values."""
    if batch.schema.equals(schema, check_metadata=True) and not any(map(uses_dictionaries, schema.types)):
        return batch
    if batch.schema.names == schema.names:
        columns = arrow_table(pa.Table.from_batches([batch]))
        if columns.schema.types == schema.types:
            return one_batch(columns.combine_chunks(), schema).cast(schema)
    raise InputError(
        f"its rows do not have the announced columns: {_columns(batch.schema)} instead of {_columns(schema)}."
    )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


class Place(NamedTuple):
    """Consecutive rows, and the position of the first of them."""

    position: int
    batch: pa.RecordBatch


@runtime_checkable
class Scan(Protocol):
    name: str
    """The name in error messages."""
    rows: int

    @property
    def schema(self) -> pa.Schema: ...

    def total_bytes(self) -> int:
        """Approximate memory size of all rows."""

    def places(self, most_rows: int, columns: Sequence[str] | None = None, start: int = 0) -> Iterator[Place]:
        """Rows from a position on, in order; only the given columns, in the order of the schema, or all."""

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table: ...


class TableScan:
    """A table in memory."""

    name = "table"

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.rows: int = table.num_rows
        self.schema: pa.Schema = table.schema

    def total_bytes(self) -> int:
        return int(self._table.nbytes)

    def places(self, most_rows: int, columns: Sequence[str] | None = None, start: int = 0) -> Iterator[Place]:
        for batch in table_batches(self.to_table(columns), start, most_rows=most_rows):
            yield Place(start, batch)
            start += batch.num_rows

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self._table if columns is None else self._table.select(list(columns))


def as_scan(rows: Any) -> Scan | None:
    """The rows as a scan, if they are at rest."""
    return TableScan(rows) if isinstance(rows, pa.Table) else rows if isinstance(rows, Scan) else None


def read_some(scan: Scan, columns: Sequence[str], starts: Sequence[int], rows: int) -> Iterator[Place]:
    """A number of consecutive rows at each of these positions."""
    for start in starts:
        wanted, found = rows, []
        for _, batch in scan.places(rows, columns, start):
            found.append(batch.slice(0, wanted))
            wanted -= found[-1].num_rows
            if not wanted:
                break
        if found:
            yield Place(start, one_batch(found, found[0].schema))
