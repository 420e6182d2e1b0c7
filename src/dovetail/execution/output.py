"""Builds result rows from row numbers: the columns of all inputs in order, in bounded batches; and their schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from dovetail.columns.batches import put_together, row_bytes
from dovetail.columns.taking import Gatherer, PaddedGatherer, gather
from dovetail.core.categories import without_order
from dovetail.core.join_types import JoinType
from dovetail.core.pandas_frames import NOTES, joined_notes
from dovetail.core.rows import Matches, Rows, Side
from dovetail.errors import InputError

MOST_ROWS = 1 << 16  # per batch
MOST_BYTES = 1 << 24
SMALLEST_BATCH = 1 << 18  # bytes, even with a smaller budget
RESULTS_SHARE = 32  # 1 / this of a budget for a batch of results; two are in flight
LARGEST_ROWS = 1 << 20  # if all results are kept anyway: larger batches cost less
LARGEST_BYTES = 1 << 26


def output_schema(left: pa.Schema, right: pa.Schema, suffix: str, how: JoinType = JoinType.INNER) -> pa.Schema:
    """The schema of a join's result; right names that clash get the suffix."""
    if how.only is Side.LEFT:
        notes = joined_notes([(left, left.names, False)]) if NOTES in (left.metadata or {}) else left.metadata
        return pa.schema(map(without_order, left), notes)
    left, right = (pa.schema(map(without_order, side), side.metadata) for side in (left, right))
    nullable = {side.other for side in how.padded}
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
    names = [field.name for field in fields]
    sides = [(left, names[: len(left)], Side.LEFT in nullable), (right, names[len(left) :], Side.RIGHT in nullable)]
    return pa.schema(fields, joined_notes(sides))


def multi_schema(schemas: Mapping[str, pa.Schema], fold_case: bool = False) -> pa.Schema:
    """The columns of all inputs in order; a name that several inputs have becomes alias_name.

    With `fold_case`, names that differ only in case are the same.
    """
    fold = str.casefold if fold_case else str
    times = Counter(fold(name) for schema in schemas.values() for name in schema.names)
    fields = [
        without_order(field).with_name(f"{alias}_{field.name}" if times[fold(field.name)] > 1 else field.name)
        for alias, schema in schemas.items()
        for field in schema
    ]
    again = [name for name, count in Counter(fold(field.name) for field in fields).items() if count > 1]
    if again:
        raise InputError(f"the result would have several columns called {', '.join(again)}: rename one of them.")
    names = iter([field.name for field in fields])
    sides = [(schema, [next(names) for _ in schema], False) for schema in schemas.values()]
    return pa.schema(fields, joined_notes(sides))


def fitting_rows(*batches: pa.RecordBatch, most_bytes: int = MOST_BYTES) -> int:
    """The number of rows in a batch of a good size, for rows combined from all of these batches."""
    most_rows = MOST_ROWS if most_bytes <= MOST_BYTES else LARGEST_ROWS
    return max(1, min(most_rows, most_bytes // row_bytes(*batches)))


def fixed_rows(schema: pa.Schema, most_bytes: int = MOST_BYTES) -> int | None:
    """The same for a schema whose columns all have a fixed width; else None."""
    try:
        bits = sum(int(type_.bit_width) for type_ in schema.types)
    except ValueError:
        return None
    return max(1, min(MOST_ROWS, most_bytes // max(1, bits // 8)))


def results_share(memory_bytes: int | None, *, spills: bool) -> tuple[int, int]:
    """The bytes of a batch of results, and the bytes to reserve for batches in flight: one here, one at the caller.

    Nothing is reserved if the budget is so small that two small batches do not fit into it, or if rows are not spilled.
    """
    if memory_bytes is None:
        return MOST_BYTES, 0
    batch = max(SMALLEST_BATCH, min(MOST_BYTES, memory_bytes // RESULTS_SHARE))
    return batch, 2 * batch if spills and batch * RESULTS_SHARE <= memory_bytes else 0


def result_batches(
    results: Matches,
    schema: pa.Schema,
    most_rows: int | None = None,
    drop: Sequence[int] = (),
    most_bytes: int = MOST_BYTES,
    share: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Results as rows of the output schema, in bounded batches, without the last `drop` columns of each input.

    Columns of inputs without rows in these results are null, or absent if the schema does not have them. `share`:
    columns may be slices of the inputs.
    """
    if not results.is_complete:
        side = Side.LEFT if results.rows[Side.LEFT] is not None else Side.RIGHT
        batch, rows = results.batches[side], results.rows[side]
        assert rows is not None
        yield from row_batches(
            side, drop_last_columns(batch, drop[side] if drop else 0), rows, schema, most_rows, most_bytes, share
        )
        return
    most_rows = most_rows or fitting_rows(*results.batches, most_bytes=most_bytes)
    extra = drop or (0,) * len(results.batches)
    inputs = [
        (Gatherer(drop_last_columns(batch, cut), share=share), rows)
        for batch, rows, cut in zip(results.batches, results.rows, extra, strict=True)
        if rows is not None
    ]
    for start in range(0, results.size, most_rows):
        for columns, size in _gathered([(batch, rows[start : start + most_rows]) for batch, rows in inputs]):
            yield put_together(columns, schema, size)


def _gathered(taken: list[tuple[Gatherer, Rows]]) -> Iterator[tuple[list[pa.Array], int]]:
    """The columns of these rows, and their number; in several parts if strings are too long for one column."""
    size = len(taken[0][1])
    try:
        columns = gather(taken)
    except OverflowError:
        if size == 1:
            raise
        yield from _gathered([(batch, rows[: size // 2]) for batch, rows in taken])
        yield from _gathered([(batch, rows[size // 2 :]) for batch, rows in taken])
    else:
        yield columns, size


def row_batches(
    side: Side,
    batch: pa.RecordBatch,
    rows: Rows,
    schema: pa.Schema,
    most_rows: int | None = None,
    most_bytes: int = MOST_BYTES,
    share: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Rows of one side alone as rows of the output schema, with nulls in the columns of the other side."""
    most_rows = most_rows or fitting_rows(batch, most_bytes=most_bytes)
    gatherer = Gatherer(batch, share=share)
    for start in range(0, len(rows), most_rows):
        for columns, size in _gathered([(gatherer, rows[start : start + most_rows])]):
            missing = schema.types[len(columns) :] if side is Side.LEFT else schema.types[: len(schema) - len(columns)]
            nulls = [pa.nulls(size, type_) for type_ in missing]
            both = columns + nulls if side is Side.LEFT else nulls + columns
            yield put_together(both, schema, size)


def padded_batches(
    left: pa.RecordBatch,
    lefts: Rows,
    right: pa.RecordBatch,
    rights: Rows,
    schema: pa.Schema,
    most_bytes: int = MOST_BYTES,
    share: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Left rows paired with right rows, or with nulls where `rights` is negative, in this order."""
    most_rows = fitting_rows(left, right, most_bytes=most_bytes)
    mine, theirs = Gatherer(left, share=share), PaddedGatherer(right)
    waiting = [slice(start, start + most_rows) for start in range(0, len(lefts), most_rows)][::-1]
    while waiting:
        part = waiting.pop()
        size = len(lefts[part])
        try:
            columns = [*gather([(mine, lefts[part])]), *theirs.take(rights[part])]
        except OverflowError:  # the strings are too long for one column
            if size == 1:
                raise
            middle = part.start + size // 2
            waiting += [slice(middle, part.start + size), slice(part.start, middle)]
        else:
            yield put_together(columns, schema, size)


def drop_last_columns(rows: pa.RecordBatch, extra: int) -> pa.RecordBatch:
    """The rows without their last `extra` columns."""
    return rows.select(range(rows.num_columns - extra)) if extra else rows
