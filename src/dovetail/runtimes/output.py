"""Pairs of rows as result rows: the left columns, then the right ones."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dovetail.batch import Pairs, Rows, Side, take_columns
from dovetail.errors import InputError

MOST_ROWS = 1 << 16  # result rows in one batch

ONE_SIDED = frozenset({"left_semi", "left_anti"})  # join types whose results are left rows only
WITHOUT_PARTNER = {"left": (Side.LEFT,), "right": (Side.RIGHT,), "full": (Side.LEFT, Side.RIGHT)}
"""Whose rows appear with nulls where they have no partner."""


def output_schema(left: pa.Schema, right: pa.Schema, suffix: str, how: str = "inner") -> pa.Schema:
    """The schema of a join's result; a right name that clashes gets the suffix."""
    if how in ONE_SIDED:
        return left
    nullable = {side.other for side in WITHOUT_PARTNER.get(how, ())}
    taken = set(left.names)
    fields = [field.with_nullable(field.nullable or Side.LEFT in nullable) for field in left]
    for field in right:
        name = field.name + suffix if field.name in taken else field.name
        if name in taken:
            raise InputError(
                f"the result would have two columns called {name!r}: choose another suffix than {suffix!r}, "
                "or rename a column."
            )
        taken.add(name)
        fields.append(field.with_name(name).with_nullable(field.nullable or Side.RIGHT in nullable))
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


def row_batches(side: Side, batch: pa.RecordBatch, rows: Rows, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of one side alone as rows of the output schema, nulls in the columns of the other."""
    for start in range(0, len(rows), MOST_ROWS):
        columns = take_columns(batch, rows[start : start + MOST_ROWS])
        missing = schema.types[len(columns) :] if side is Side.LEFT else schema.types[: len(schema) - len(columns)]
        nulls = [pa.nulls(len(rows[start : start + MOST_ROWS]), type_) for type_ in missing]
        columns = columns + nulls if side is Side.LEFT else nulls + columns
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _without(rows: pa.RecordBatch, extra: int) -> pa.RecordBatch:
    return rows.select(range(rows.num_columns - extra)) if extra else rows
