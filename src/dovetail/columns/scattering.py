"""Rows of several batches combined into one batch, each row at a given position.

Plain numbers and strings without nulls are written directly. All other columns are taken batch by batch, concatenated,
and taken once more, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import concatenate, put_together
from dovetail.columns.row_store import MOST_BYTES
from dovetail.columns.taking import take_columns, take_rows
from dovetail.core.buffers import OFFSETS, PLAIN, byte_strings
from dovetail.core.rows import Rows
from dovetail.kernels.taking import copy_strings, note_lengths


class Source:
    """A batch, and NumPy views of its columns."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._views: dict[int, Any] = {}  # by column number

    def view(self, number: int) -> Any:
        """Plain values, or offsets and bytes of strings; None for columns with nulls or of other types."""
        if number not in self._views:
            self._views[number] = _view(self.batch.column(number))
        return self._views[number]


class Place(NamedTuple):
    """Rows of a batch, and their positions in the result."""

    chosen: slice | Rows
    source: Source
    rows: Rows


def scatter(places: Sequence[Place], columns: Sequence[int], schema: pa.Schema, size: int) -> pa.RecordBatch:
    """A batch of `size` rows: these columns of the sources, described by `schema`. Every row has exactly one place."""
    views = [[place.source.view(number) for place in places] for number in columns]
    indirect = [i for i, of_column in enumerate(views) if any(view is None for view in of_column)]
    taken = dict(zip(indirect, _in_two_steps(places, [columns[i] for i in indirect], size), strict=True))
    arrays = [taken[i] if i in taken else _directly(schema.types[i], places, views[i], size) for i in range(len(views))]
    return put_together(arrays, schema, size)


def _in_two_steps(places: Sequence[Place], columns: Sequence[int], size: int) -> list[pa.Array]:
    if not columns:
        return []
    taken = [take_rows(place.source.batch.select(columns), place.rows) for place in places]
    if len(taken) == 1:
        return list(taken[0].columns)
    order = np.empty(size, np.int64)
    order[np.concatenate([np.arange(size)[place.chosen] for place in places])] = np.arange(size)
    return take_columns(concatenate(taken), order)


def _view(column: pa.Array) -> Any:
    if column.null_count:
        return None
    if column.type.id in PLAIN:
        return np.asarray(column)
    return byte_strings(column) if column.type.id in OFFSETS and len(column) else None


def _directly(type_: pa.DataType, places: Sequence[Place], views: Sequence[Any], size: int) -> pa.Array:
    if type_.id in OFFSETS:
        return _strings(type_, places, views, size)
    values = np.empty(size, views[0].dtype)
    for place, view in zip(places, views, strict=True):
        values[place.chosen] = view[place.rows]
    return pa.Array.from_buffers(type_, size, [None, pa.py_buffer(values)])


def _strings(type_: pa.DataType, places: Sequence[Place], views: Sequence[Any], size: int) -> pa.Array:
    starts = np.zeros(size + 1, OFFSETS[type_.id])
    chosen = [np.arange(size) if isinstance(place.chosen, slice) else place.chosen for place in places]
    for place, (offsets, _), to in zip(places, views, chosen, strict=True):
        note_lengths(offsets, place.rows, to, starts)
    ends = np.cumsum(starts, dtype=np.int64)
    if int(ends[-1]) > MOST_BYTES and OFFSETS[type_.id] is np.int32:
        raise pa.ArrowCapacityError(f"strings of {int(ends[-1]):,} bytes do not fit in one column of {type_}.")
    starts[:] = ends
    copy = np.empty(int(starts[-1]), np.uint8)
    for place, (offsets, data), to in zip(places, views, chosen, strict=True):
        copy_strings(offsets, data, place.rows, to, starts, copy)
    return pa.Array.from_buffers(type_, size, [None, pa.py_buffer(starts), pa.py_buffer(copy)])
