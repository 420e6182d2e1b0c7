"""What a join may be given in place of a source: tables, readers, iterators of record batches."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any

import pyarrow as pa

from dovetail.core.rows import one_batch
from dovetail.core.tables import arrow_table, plain_schema
from dovetail.errors import InputError
from dovetail.sources.protocol import Piece, Position, Source


class Local:
    """Batches that are read once, from first to last: after a break there is no way back."""

    resumable = False

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, name: str) -> None:
        self.name = name
        self.schema = schema
        self._batches = batches

    def open(self, position: Position = None) -> Generator[Piece, None, None]:
        try:
            for batch in self._batches:
                yield Piece(batch, None)
        finally:
            close = getattr(self._batches, "close", None)
            if close is not None:
                close()


def as_input(rows: Any) -> pa.Table | Source:
    """A table where the rows are at rest, a source where they are still to come."""
    if isinstance(rows, Source):
        return rows
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
    return arrow_table(rows)


def as_source(rows: pa.Table | Source) -> Source:
    """A table as a source that gives all of its rows as soon as it is asked."""
    if isinstance(rows, Source):
        return rows
    return Local(rows.to_batches(), rows.schema, "table")


def joined_schema(source: pa.Table | Source) -> pa.Schema:
    """The schema of the rows as the join sees them."""
    return plain_schema(source.schema)


def conform_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly this schema, which may differ from its own in what does not change values."""
    if batch.schema.equals(schema, check_metadata=True):
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
