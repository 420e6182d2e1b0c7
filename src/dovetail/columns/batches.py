"""Whole record batches: assembled from columns, sliced, concatenated, measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dovetail.core.rows import Matches


def put_together(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """The columns as a batch of `rows` rows. Without columns, Arrow cannot infer that number."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.record_batch([pa.nulls(rows)], [""]).select([]).replace_schema_metadata(schema.metadata)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows. `pa.nulls` knows every type, unlike `pa.array`: unions, encodings, dictionaries."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def slices(batch: pa.RecordBatch, most_rows: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most `most_rows` rows, without copying."""
    for start in range(0, batch.num_rows, most_rows):
        yield batch.slice(start, most_rows)


def table_batches(
    table: pa.Table, start: int = 0, size: int | None = None, most_rows: int | None = None
) -> list[pa.RecordBatch]:
    """The rows of a table from `start`, without copying. Arrow's slice of a table without columns keeps all rows."""
    if table.num_columns:
        return list(table.slice(start, size).to_batches(max_chunksize=most_rows))
    rows = min(table.num_rows - start, table.num_rows if size is None else size)
    return list(slices(put_together([], table.schema, rows), most_rows or max(1, rows)))


def concatenate(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One or more batches as one; a single batch is not copied."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def one_batch(table: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """All rows as a single record batch."""
    batches = table.to_batches() if isinstance(table, pa.Table) else list(table)
    return concatenate(batches) if batches else empty_batch(schema)


def row_bytes(*rows: pa.RecordBatch | pa.Table) -> int:
    """The average size of a row in bytes; with several batches, the sum over one row of each."""
    return max(1, sum([int(some.nbytes) // max(1, int(some.num_rows)) for some in rows]))


def no_matches(schemas: Sequence[pa.Schema]) -> Matches:
    """No results: yielded by a unit of work that found no matches."""
    batches = tuple(empty_batch(schema) for schema in schemas)
    return Matches(batches, tuple(np.empty(0, np.int64) for _ in schemas))
