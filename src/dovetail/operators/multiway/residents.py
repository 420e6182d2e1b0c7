"""Resident rows of one of several inputs: the rows, their ticks of arrival, and an ordered index for each attribute.

A row is in all indexes of its input or in none. Rows are numbered without gaps; after an eviction the others move up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.rows import Rows, take_rows
from dovetail.matching.links import Attribute, Coded, Codes
from dovetail.storage.ordered_index import OrderedIndex
from dovetail.storage.residence import Ticks
from dovetail.storage.resident_snapshot import Held, Marks, Serials
from dovetail.storage.row_store import RowStore

ARRIVED = "__arrived"  # extra columns of a kept row: the tick of its arrival,
CODE = "__code"  # and one code per attribute
INDEX_BYTES = 17  # of an entry: code, row number, mark
PER_ROW = 12  # bytes: whether it was used, serial number

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
        """With the indexes that it has or will have."""
        return int(self.batch.nbytes) + extra_bytes(len(self), len(self._codes))

    @property
    def arrived(self) -> Ticks:
        return np.asarray(self.batch.column(self.batch.num_columns - 1 - len(self._codes)))

    def codes(self, attribute: Attribute) -> Codes:
        return self._codes[attribute]

    def index(self, attribute: Attribute) -> OrderedIndex:
        if attribute not in self._indexes:
            index = self._indexes[attribute] = OrderedIndex()
            index.insert(self._codes[attribute], np.arange(len(self)))
        return self._indexes[attribute]


class Residents:
    def __init__(self, schema: pa.Schema, attributes: Sequence[Attribute]) -> None:
        self.attributes = tuple(attributes)
        self._schema = resident_schema(schema, attributes)
        self._rows = RowStore(self._schema)
        self._indexes = {attribute: OrderedIndex() for attribute in self.attributes}
        self._used = np.zeros(64, np.int32)
        self._serials = np.zeros(64, np.int64)
        self.next_serial = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + extra_bytes(len(self), len(self._indexes))

    @property
    def batch(self) -> pa.RecordBatch:
        return self._rows.view()

    @property
    def used(self) -> NDArray[np.int32]:
        """1 for rows that took part in a result lately; to be written to."""
        return self._used[: len(self)]

    def fits(self, batch: Batch) -> bool:
        """Whether Arrow can hold the rows in one array together with those that are here."""
        return self._rows.fits(batch.batch)

    @property
    def arrived(self) -> Ticks:
        return np.asarray(self.batch.column(len(self._schema) - 1 - len(self.attributes)))

    def codes(self, attribute: Attribute) -> Codes:
        first = len(self._schema) - len(self.attributes)
        return np.asarray(self.batch.column(first + self.attributes.index(attribute)))

    def index(self, attribute: Attribute) -> OrderedIndex:
        return self._indexes[attribute]

    def held(self) -> Held:
        def take(page: slice) -> pa.RecordBatch:
            return self.batch.slice(page.start, page.stop - page.start)

        return Held(self._serials[: len(self)], self.used, self.next_serial, take)

    def insert(self, batch: Batch, used: Flags | Marks, serials: Serials | None = None) -> None:
        """Keep rows; `serials` if they have been here."""
        if not len(batch):
            return
        first = self._rows.append(batch.batch)
        rows = np.arange(first, len(self))
        for attribute, index in self._indexes.items():
            index.insert(batch.codes(attribute), rows)
        if len(self) > len(self._used):
            more = 2 * len(self) - len(self._used)
            self._used, self._serials = np.pad(self._used, (0, more)), np.pad(self._serials, (0, more))
        self._used[rows] = used
        self._serials[rows] = self.next_serial + np.arange(len(rows)) if serials is None else serials
        self.next_serial = int(self._serials[rows[-1]]) + 1

    def remove(self, rows: Rows) -> pa.RecordBatch:
        """Remove rows from memory and from all indexes; returns them in the given order."""
        gone = take_rows(self.batch, rows)
        stay = np.ones(len(self), np.bool_)
        stay[rows] = False
        numbers = np.where(stay, np.cumsum(stay) - 1, -1)
        kept = np.flatnonzero(stay)
        used, serials = self.used[kept], self._serials[kept]
        remaining = take_rows(self.batch, kept)
        self._rows = RowStore(self._schema)
        if remaining.num_rows:
            self._rows.append(remaining)
        self._used[: len(kept)], self._serials[: len(kept)] = used, serials
        for index in self._indexes.values():
            index.renumber(numbers)
        return gone


def extra_bytes(rows: int, attributes: int) -> int:
    """The size of the indexes of a row."""
    return rows * (PER_ROW + INDEX_BYTES * attributes)


def resident_schema(schema: pa.Schema, attributes: Sequence[Attribute]) -> pa.Schema:
    """The schema of kept rows."""
    extra = [ARRIVED, *(f"{CODE}{i}" for i in range(len(attributes)))]
    return pa.schema([*schema, *(pa.field(name, pa.int64()) for name in extra)])


def _code_columns(attributes: Sequence[Attribute], batch: pa.RecordBatch) -> Mapping[Attribute, NDArray[Any]]:
    first = batch.num_columns - len(attributes)
    return {attribute: np.asarray(batch.column(first + i)) for i, attribute in enumerate(attributes)}
