"""Rows of one of several inputs in memory: their values, their arrival ticks, and an index per attribute.

A row is in all indexes of its input or in none. Rows are numbered without gaps; when some are removed, the others move
up. Codes are not stored with the rows: they are recomputed for candidates, and for all rows when some are removed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.row_store import MOST_BYTES
from dovetail.condition import columns_of
from dovetail.core.rows import Rows
from dovetail.kernels.hashing import hash_codes
from dovetail.matching.links import Attribute, Bounds, Coded, Codes, attribute_codes
from dovetail.storage.hash_table import CompactTable
from dovetail.storage.ordered_index import OrderedIndex
from dovetail.storage.packed_rows import PackedRows
from dovetail.storage.residence import ArrivalTicks, Ticks
from dovetail.storage.resident_snapshot import Held, Marks, Survivors
from dovetail.storage.row_marks import RowMarks

ARRIVED = "__arrived"  # extra columns of a kept row: the tick of its arrival,
CODE = "__code"  # and one code per attribute
EXTRA_BYTES = 8  # bytes per extra column
PER_ENTRY = 12  # bytes of an ordered index: code, row number

Flags = NDArray[np.bool_]


class Batch:
    """Rows of one input with their extra columns: arriving, or read back from disk."""

    def __init__(self, attributes: Sequence[Attribute], batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._codes = _code_columns(attributes, batch)
        self._indexes: dict[Attribute, OrderedIndex] = {}

    @classmethod
    def arriving(cls, attributes: Sequence[Attribute], rows: Coded, tick: int) -> Batch:
        ticks = np.full(rows.batch.num_rows, tick, np.int64)
        columns = [*rows.batch.columns, *(pa.array(extra) for extra in (ticks, *rows.codes))]
        return cls(
            attributes, pa.RecordBatch.from_arrays(columns, schema=resident_schema(rows.batch.schema, attributes))
        )

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes including the indexes that it has or will have."""
        return int(self.batch.nbytes) + extra_bytes(len(self), len(self._codes))

    @property
    def arrived(self) -> Ticks:
        return np.asarray(self.batch.column(self.batch.num_columns - 1 - len(self._codes)))

    def codes(self, attribute: Attribute, rows: Rows | None = None) -> Codes:
        """The codes of all rows, or of those with these numbers."""
        codes = self._codes[attribute]
        return codes if rows is None else codes[rows]

    def find(self, attribute: Attribute, bounds: Bounds, most: int) -> Iterator[tuple[Rows, Rows]]:
        if attribute not in self._indexes:
            index = self._indexes[attribute] = OrderedIndex()
            index.insert(self._codes[attribute], np.arange(len(self)))
        return self._indexes[attribute].find(*bounds, most=most)

    def located(self, rows: Rows, names: Sequence[str] | None = None) -> tuple[pa.RecordBatch, Rows]:
        return self.batch, rows


class Residents:
    """Rows in memory. `ordered`: attributes that are looked up by range; the others are looked up by equality."""

    def __init__(
        self,
        schema: pa.Schema,
        attributes: Sequence[Attribute],
        ordered: Container[Attribute],
        part_bytes: int = MOST_BYTES,
    ) -> None:
        self.attributes = tuple(attributes)
        self.arrived = ArrivalTicks()
        self.marks = RowMarks()  # whether a row was recently part of a result
        self._survivors = Survivors()
        self._schema = resident_schema(schema, attributes)
        self._rows = PackedRows(schema, part_bytes)
        self._indexes = {a: OrderedIndex() for a in self.attributes if a in ordered}
        self._tables = {a: CompactTable() for a in self.attributes if a not in ordered}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def index_bytes(self) -> int:
        return sum(index.nbytes for index in self._indexes.values()) + sum(t.nbytes for t in self._tables.values())

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self.index_bytes + self.arrived.nbytes + self.marks.nbytes + self._survivors.nbytes

    @property
    def stored_bytes(self) -> int:
        """Bytes of the rows with their extra columns."""
        return self._rows.nbytes + EXTRA_BYTES * len(self) * (1 + len(self.attributes))

    def nbytes_for(self, batch: Batch) -> int:
        """The additional bytes needed to keep the batch."""
        rows = len(batch)
        tables = sum(table.nbytes_with(rows) - table.nbytes for table in self._tables.values())
        own = int(batch.batch.nbytes) - EXTRA_BYTES * rows * (1 + len(self.attributes))
        return own + tables + PER_ENTRY * rows * len(self._indexes) + self.marks.nbytes_with(rows) - self.marks.nbytes

    def codes(self, attribute: Attribute, rows: Rows | None = None) -> Codes:
        """The codes of all rows, or of those with these numbers."""
        if rows is None:
            return self._rows.column(partial(attribute_codes, attribute))
        names = sorted({column.name for key in attribute.keys for column in columns_of(key)})
        return attribute_codes(attribute, self._rows.take(rows, names)) if len(rows) else np.empty(0, np.int64)

    def find(self, attribute: Attribute, bounds: Bounds, most: int) -> Iterator[tuple[Rows, Rows]]:
        if attribute in self._indexes:
            yield from self._indexes[attribute].find(*bounds, most=most)
            return
        wanted = bounds.low
        assert wanted is not None
        for probing, rows in self._tables[attribute].find(hash_codes(np.ascontiguousarray(wanted)), most):
            same = self.codes(attribute, rows) == wanted[probing]
            yield (probing, rows) if same.all() else (probing[same], rows[same])

    def located(self, rows: Rows, names: Sequence[str] | None = None) -> tuple[pa.RecordBatch, Rows]:
        parts = self._rows.parts
        if len(parts) == 1:
            return parts[0], rows
        return self._rows.copied(rows, names)

    def take(self, rows: Rows) -> pa.RecordBatch:
        """Rows with their extra columns, in this order."""
        batch = self._rows.take(rows)
        codes = [attribute_codes(attribute, batch) for attribute in self.attributes]
        columns = [*batch.columns, *(pa.array(extra) for extra in (self.arrived[rows], *codes))]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def held(self) -> Held:
        def take(page: slice) -> pa.RecordBatch:
            return self.take(np.arange(page.start, page.stop))

        return Held(self._survivors.all(), self.marks.all().astype(np.int32), take)

    def saved(self) -> None:
        """Called when a snapshot contains all rows."""
        self._survivors.restart(len(self))

    def insert(self, batch: Batch, used: Flags | Marks) -> None:
        if not len(batch):
            return
        rows = np.arange(len(self), len(self) + len(batch))
        own = range(len(self._rows.schema))
        self._rows.append(batch.batch.select(own))
        self.arrived.append(batch.arrived, len(batch))
        self.marks.append(used)
        for attribute, index in self._indexes.items():
            index.insert(batch.codes(attribute), rows)
        for attribute, table in self._tables.items():
            table.insert(hash_codes(np.ascontiguousarray(batch.codes(attribute))), partial(self._hashes, attribute))

    def remove(self, rows: Rows) -> None:
        """Remove rows from memory and all indexes; later rows move up."""
        gone = np.zeros(len(self), np.bool_)
        gone[rows] = True
        self._rows.remove(gone)
        self.arrived.remove(gone)
        self.marks.remove(gone)
        self._survivors.remove(gone)
        for index in self._indexes.values():
            index.renumber(np.where(gone, -1, np.cumsum(~gone) - 1))
        for attribute, table in self._tables.items():
            table.remove(gone, partial(self._hashes, attribute))

    def _hashes(self, attribute: Attribute) -> Iterator[Codes]:
        return (hash_codes(np.ascontiguousarray(attribute_codes(attribute, part))) for part in self._rows.parts)


def extra_bytes(rows: int, attributes: int) -> int:
    """Bytes that rows take when read back, besides their columns: the ticks of their eviction, and ordered indexes."""
    return rows * (8 + PER_ENTRY * attributes)


def resident_schema(schema: pa.Schema, attributes: Sequence[Attribute]) -> pa.Schema:
    """The schema of kept rows."""
    extra = [ARRIVED, *(f"{CODE}{i}" for i in range(len(attributes)))]
    return pa.schema([*schema, *(pa.field(name, pa.int64()) for name in extra)])


def _code_columns(attributes: Sequence[Attribute], batch: pa.RecordBatch) -> Mapping[Attribute, NDArray[Any]]:
    first = batch.num_columns - len(attributes)
    return {attribute: np.asarray(batch.column(first + i)) for i, attribute in enumerate(attributes)}
