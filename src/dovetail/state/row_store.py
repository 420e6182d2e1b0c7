"""The resident rows of one side: append batches, take rows by position, read all as one record batch."""

from __future__ import annotations

import pyarrow as pa

from dovetail.batch import Rows, take_rows
from dovetail.state.growing import growing_column

MOST_BYTES = 2**31 - 1  # 32-bit offsets of strings and lists end here


class RowStore:
    """Rows keep their position for ever: 0, 1, 2, … in the order of arrival."""

    def __init__(self, schema: pa.Schema, most_bytes: int = MOST_BYTES) -> None:
        self.schema = schema
        self._columns = [growing_column(field.type) for field in schema]
        self._most_bytes = most_bytes
        self._rows = 0
        self.nbytes = 0
        self._view: pa.RecordBatch | None = None

    def __len__(self) -> int:
        return self._rows

    def fits(self, batch: pa.RecordBatch) -> bool:
        """Whether the rows can be appended and still be read as one batch."""
        room = self._most_bytes - self.nbytes
        return bool(batch.get_total_buffer_size() <= room or batch.nbytes <= room)  # the first is an upper bound, cheap

    def append(self, batch: pa.RecordBatch) -> int:
        """Keep the rows; return the position of the first."""
        first = self._rows
        for column, array in zip(self._columns, batch.columns, strict=True):
            column.append(array)
        self._rows += batch.num_rows
        self.nbytes = sum(column.nbytes for column in self._columns)
        self._view = None
        return first

    def view(self) -> pa.RecordBatch:
        """All rows, without a copy. Stays valid when more rows are appended."""
        if self._view is None:
            self._view = pa.RecordBatch.from_arrays([c.view() for c in self._columns], schema=self.schema)
        return self._view

    def take(self, rows: Rows) -> pa.RecordBatch:
        return take_rows(self.view(), rows)
