"""Pairs of rows as result rows: the left columns, then the right ones."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dovetail.batch import Pairs, take_columns
from dovetail.errors import InputError

MOST_ROWS = 1 << 16  # result rows in one batch


def output_schema(left: pa.Schema, right: pa.Schema, suffix: str) -> pa.Schema:
    """The schema of an inner join's result; a right name that clashes gets the suffix."""
    taken = set(left.names)
    fields = list(left)
    for field in right:
        name = field.name + suffix if field.name in taken else field.name
        if name in taken:
            raise InputError(
                f"the result would have two columns called {name!r}: choose another suffix than {suffix!r}, "
                "or rename a column."
            )
        taken.add(name)
        fields.append(field.with_name(name))
    return pa.schema(fields)


def result_batches(
    pairs: Pairs, schema: pa.Schema, most_rows: int = MOST_ROWS, drop: tuple[int, int] = (0, 0)
) -> Iterator[pa.RecordBatch]:
    """The pairs as rows of the output schema, in bounded batches, without the last `drop` columns of each side."""
    left, right = (_without(rows, extra) for rows, extra in zip((pairs.left, pairs.right), drop, strict=True))
    for start in range(0, pairs.size, most_rows):
        end = start + most_rows
        left_columns = take_columns(left, pairs.left_rows[start:end])
        right_columns = take_columns(right, pairs.right_rows[start:end])
        yield pa.RecordBatch.from_arrays(left_columns + right_columns, schema=schema)


def _without(rows: pa.RecordBatch, extra: int) -> pa.RecordBatch:
    return rows.select(range(rows.num_columns - extra)) if extra else rows
