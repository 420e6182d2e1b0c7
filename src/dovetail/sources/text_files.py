"""Reads CSV and newline-delimited JSON in pieces. A piece ends with a record, and the next one begins there.

    bytes   id,note⏎1,"a⏎b"⏎2,c⏎3,d…        a line break in quotes does not end a record
    pieces          └──────────┘└───…        a position is the byte offset of a record

Types are inferred from the first piece, or given by a schema. A later value that does not fit is an error: nothing is
silently turned into text or null.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv, json

from dovetail.errors import InputError, SourceError
from dovetail.sources.byte_streams import ByteStream
from dovetail.sources.protocol import Piece, conform_schema

PIECE_BYTES = 1 << 20
FIRST_BYTES = 1 << 17  # small, so that first results come early
LONGEST_RECORD = 1 << 28
LINE_BREAK, QUOTE = ord("\n"), ord('"')
MARK = "\ufeff".encode()  # byte order mark, which some programs write first


class TextSource(ABC):
    """Records of a file. Subclasses turn them into rows."""

    def __init__(self, stream: ByteStream, schema: Any, columns: Sequence[str] | None, rows: Any) -> None:
        if schema is not None and not isinstance(schema, pa.Schema):
            raise InputError(f"schema= is a pyarrow.Schema, such as pa.schema({{'id': pa.int64()}}); got {schema!r}.")
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 0):
            raise InputError(f"rows= is how many rows there are, a whole number; got {rows!r}.")
        self.name = stream.name
        self.rows = rows
        self._stream = stream
        self._start = 0  # of the first record
        self.schema = self._read_schema(schema, columns)
        self.resumable = stream.resumable  # known from the server by now

    def open(self, position: int | None = None) -> Generator[Piece, None, None]:
        start = self._start if position is None else position
        for records in self._pieces(start):
            start += len(records)
            batch = self._rows(records)
            yield Piece(conform_schema(batch, self.schema), start)
            del batch

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """All rows, for callers that need a table."""
        batches = (piece.batch for piece in self.open())
        return pa.RecordBatchReader.from_batches(self.schema, batches).__arrow_c_stream__(requested_schema)

    def _pieces(self, position: int) -> Iterator[bytes]:
        """Whole records, from a position on."""
        waiting, wanted = bytearray(), FIRST_BYTES
        for chunk in self._stream.chunks(position):
            waiting += chunk
            if len(waiting) < wanted:
                continue
            end = self._last_end(waiting)
            if end:
                yield bytes(waiting[:end])
                del waiting[:end]
                wanted = PIECE_BYTES
            elif len(waiting) > LONGEST_RECORD:
                raise SourceError(f"{self.name}: a record has more than {LONGEST_RECORD:,} bytes: a quote may be open.")
            else:
                wanted = 2 * len(waiting)
        if waiting.strip():
            yield bytes(waiting)

    def _first(self) -> bytes:
        """The first records, from which types are inferred."""
        try:
            return next(self._pieces(0), b"")
        except OSError as error:
            raise SourceError(f"{self.name} cannot be read: {error}.") from None

    def _last_end(self, text: bytearray) -> int:
        """Where the last whole record ends."""
        return text.rfind(b"\n") + 1

    @abstractmethod
    def _read_schema(self, schema: pa.Schema | None, columns: Sequence[str] | None) -> pa.Schema:
        """The schema of all rows, from the given one or from the first records."""

    @abstractmethod
    def _rows(self, records: bytes) -> pa.RecordBatch:
        """Turn whole records into rows."""

    def _misfit(self, error: pa.ArrowInvalid) -> SourceError:
        return SourceError(
            f"{self.name}: {str(error).splitlines()[0].rstrip('. ')}. The types are {_types(self.schema)}; give "
            "schema= with types that hold all values."
        )

    def _choose(self, found: pa.Schema, schema: pa.Schema | None, columns: Sequence[str] | None) -> pa.Schema:
        """The wanted columns, with the given types. A column without values so far may contain text later."""
        names = list(columns) if columns is not None else found.names if schema is None else schema.names
        for name in names:
            if name not in found.names:
                raise InputError(f"{self.name} has no column {name!r}; it has {', '.join(found.names)}.")
        types = {field.name: field.type for field in (*found, *(schema or ()))}
        return pa.schema([(n, pa.string() if pa.types.is_null(types[n]) else types[n]) for n in names])


class CsvSource(TextSource):
    """Comma-separated values, with column names in the first record."""

    def __init__(
        self,
        stream: ByteStream,
        schema: Any,
        columns: Sequence[str] | None,
        rows: Any,
        delimiter: Any,
    ) -> None:
        if not isinstance(delimiter, str) or len(delimiter) != 1:
            raise InputError(f"delimiter= is one character, such as ';'; got {delimiter!r}.")
        self._delimiter = delimiter
        self._names: list[str] = []
        super().__init__(stream, schema, columns, rows)

    def _read_schema(self, schema: pa.Schema | None, columns: Sequence[str] | None) -> pa.Schema:
        first = self._first()
        end = _record_end(first)
        header = first[:end].removeprefix(MARK)
        if not header.strip():
            raise InputError(f"{self.name} is empty: the first line of a CSV file has the names of its columns.")
        self._start = end
        self._names = [str(c[0]) for c in self._parse(header, autogenerate=True).columns]
        twice = sorted({name for name in self._names if self._names.count(name) > 1})
        if twice:
            raise InputError(f"{self.name} has several columns called {', '.join(twice)}.")
        try:
            found = self._parse(first[end:]) if first[end:].strip() else self._parse(header).slice(0, 0)
        except pa.ArrowInvalid as error:
            raise SourceError(f"{self.name}: {str(error).splitlines()[0].rstrip('. ')}.") from None
        if not first[end:].strip():
            found = pa.table({name: pa.nulls(0) for name in self._names})
        return self._choose(found.schema, schema, columns)

    def _rows(self, records: bytes) -> pa.RecordBatch:
        try:
            return _one_batch(self._parse(records, self.schema), self.schema)
        except pa.ArrowInvalid as error:
            raise self._misfit(error) from None

    def _parse(self, records: bytes, types: pa.Schema | None = None, *, autogenerate: bool = False) -> pa.Table:
        return csv.read_csv(
            io.BytesIO(records),
            csv.ReadOptions(
                use_threads=False,
                block_size=len(records) + 1,
                column_names=None if autogenerate else self._names,
                autogenerate_column_names=autogenerate,
            ),
            csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            # As in Spark: an empty field is null, also for text; "NA" and "null" are text.
            csv.ConvertOptions(
                null_values=[""],
                strings_can_be_null=True,
                column_types=types,
                include_columns=None if types is None else types.names,
            )
            if not autogenerate
            else csv.ConvertOptions(null_values=[], column_types={f"f{n}": pa.string() for n in range(len(records))}),
        )

    def _last_end(self, text: bytearray) -> int:
        ends = _record_ends(text)
        return int(ends[-1]) + 1 if len(ends) else 0


class JsonSource(TextSource):
    """One object per line."""

    def _read_schema(self, schema: pa.Schema | None, columns: Sequence[str] | None) -> pa.Schema:
        first = self._first().removeprefix(MARK)
        if first.lstrip()[:1] == b"[":
            raise InputError(f"{self.name} is one array: write an object in each line, or read it into a table first.")
        if not first.strip():
            if schema is None:
                raise InputError(f"{self.name} is empty, so that its columns are not known: give schema=.")
            return schema
        try:
            found = json.read_json(io.BytesIO(first), json.ReadOptions(use_threads=False, block_size=len(first) + 1))
        except pa.ArrowInvalid as error:
            raise SourceError(f"{self.name}: {str(error).splitlines()[0].rstrip('. ')}.") from None
        missing = [field for field in schema or () if field.name not in found.column_names]  # it may come later
        return self._choose(pa.schema([*found.schema, *missing]), schema, columns)

    def _rows(self, records: bytes) -> pa.RecordBatch:
        records = records.removeprefix(MARK)
        try:
            found = json.read_json(
                io.BytesIO(records),
                json.ReadOptions(use_threads=False, block_size=len(records) + 1),
                json.ParseOptions(explicit_schema=self.schema, unexpected_field_behavior="ignore"),
            )
        except pa.ArrowInvalid as error:
            raise self._misfit(error) from None
        return _one_batch(found.select(self.schema.names), self.schema)


def _record_ends(text: bytes | bytearray) -> NDArray[np.int64]:
    """The positions of line breaks outside quotes. An escaped quote is two quotes, so it changes nothing."""
    characters = np.frombuffer(bytes(text), np.uint8)
    breaks = np.flatnonzero(characters == LINE_BREAK)
    quotes = np.flatnonzero(characters == QUOTE)
    ends: NDArray[np.int64] = breaks[np.searchsorted(quotes, breaks) % 2 == 0]
    return ends


def _record_end(text: bytes) -> int:
    """Where the first record ends."""
    ends = _record_ends(text)
    return int(ends[0]) + 1 if len(ends) else len(text)


def _one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema)


def _types(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
