"""The resident rows of one side: append batches, take rows by position, read all as one record batch."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import put_together
from dovetail.columns.taking import take_rows
from dovetail.core.buffers import Bytes, buffer_bytes
from dovetail.core.rows import Rows

GROWTH = 4  # untouched memory costs nothing, copying does


class GrowingColumn(Protocol):
    def append(self, array: pa.Array) -> None: ...
    def view(self) -> pa.Array: ...
    @property
    def nbytes(self) -> int: ...


class _Buffer:
    """A byte buffer that grows by a factor."""

    def __init__(self) -> None:
        self.memory: Bytes = np.empty(64, np.uint8)
        self.size = 0

    def append(self, data: NDArray[Any]) -> None:
        raw = data.view(np.uint8)
        end = self.size + len(raw)
        if end > len(self.memory):
            larger = np.empty(max(end, GROWTH * len(self.memory)), np.uint8)
            larger[: self.size] = self.memory[: self.size]
            self.memory = larger
        self.memory[self.size : end] = raw
        self.size = end

    def view(self) -> pa.Buffer:
        return pa.py_buffer(self.memory[: self.size])


class _Bits:
    """A bitmap that grows bit by bit."""

    def __init__(self) -> None:
        self.bytes = _Buffer()
        self.length = 0

    def append(self, bits: NDArray[np.bool_]) -> None:
        rest = self.length % 8
        if rest:  # the last byte is partly filled: write it again
            last = np.unpackbits(self.bytes.memory[self.bytes.size - 1 : self.bytes.size], bitorder="little")
            bits = np.concatenate([last[:rest].astype(np.bool_), bits])
            self.bytes.size -= 1
            self.length -= rest
        self.bytes.append(np.packbits(bits, bitorder="little"))
        self.length += len(bits)


class _Validity:
    """Null flags, stored only once there is a null."""

    def __init__(self) -> None:
        self.bits: _Bits | None = None
        self.length = 0

    def append(self, array: pa.Array) -> None:
        if array.null_count and self.bits is None:
            self.bits = _Bits()
            self.bits.append(np.ones(self.length, np.bool_))
        if self.bits is not None:
            flags = np.asarray(array.is_valid()) if array.null_count else np.ones(len(array), np.bool_)
            self.bits.append(flags)
        self.length += len(array)

    def view(self) -> pa.Buffer | None:
        return None if self.bits is None else self.bits.bytes.view()

    @property
    def nbytes(self) -> int:
        return 0 if self.bits is None else self.bits.bytes.size


class _Fixed:
    """Values of a fixed width in whole bytes."""

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self.width = type_.bit_width // 8
        self.validity = _Validity()
        self.values = _Buffer()

    def append(self, array: pa.Array) -> None:
        self.validity.append(array)
        raw = buffer_bytes(array.buffers()[1])
        self.values.append(raw[array.offset * self.width : (array.offset + len(array)) * self.width])

    def view(self) -> pa.Array:
        return pa.Array.from_buffers(self.type, self.validity.length, [self.validity.view(), self.values.view()])

    @property
    def nbytes(self) -> int:
        return self.validity.nbytes + self.values.size


class _Boolean:
    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self.validity = _Validity()
        self.values = _Bits()

    def append(self, array: pa.Array) -> None:
        self.validity.append(array)
        self.values.append(np.asarray(array.fill_null(False)))

    def view(self) -> pa.Array:
        buffers = [self.validity.view(), self.values.bytes.view()]
        return pa.Array.from_buffers(self.type, self.validity.length, buffers)

    @property
    def nbytes(self) -> int:
        return self.validity.nbytes + self.values.bytes.size


class _Offsets:
    """The start of each variable-length value in the data it points into."""

    def __init__(self, width: int) -> None:
        self.dtype: type[np.integer[Any]] = np.int64 if width == 8 else np.int32
        self.buffer = _Buffer()
        self.buffer.append(np.zeros(1, self.dtype))
        self.end = 0

    def append(self, array: pa.Array) -> tuple[int, int]:
        """Append an array's offsets; return the range of the data they point into."""
        if len(array) == 0:
            return 0, 0
        offsets = np.frombuffer(array.buffers()[1], self.dtype)[array.offset : array.offset + len(array) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        self.buffer.append(offsets[1:] + self.dtype(self.end - first))
        self.end += last - first
        return first, last


class _Strings:
    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self.validity = _Validity()
        self.offsets = _Offsets(8 if type_ in (pa.large_string(), pa.large_binary()) else 4)
        self.data = _Buffer()

    def append(self, array: pa.Array) -> None:
        self.validity.append(array)
        first, last = self.offsets.append(array)
        if last > first:
            self.data.append(buffer_bytes(array.buffers()[2])[first:last])

    def view(self) -> pa.Array:
        buffers = [self.validity.view(), self.offsets.buffer.view(), self.data.view()]
        return pa.Array.from_buffers(self.type, self.validity.length, buffers)

    @property
    def nbytes(self) -> int:
        return self.validity.nbytes + self.offsets.buffer.size + self.data.size


class _Lists:
    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self.validity = _Validity()
        self.offsets = _Offsets(8 if pa.types.is_large_list(type_) else 4)
        self.child = growing_column(type_.value_type)

    def append(self, array: pa.Array) -> None:
        self.validity.append(array)
        first, last = self.offsets.append(array)
        self.child.append(array.values.slice(first, last - first))

    def view(self) -> pa.Array:
        buffers = [self.validity.view(), self.offsets.buffer.view()]
        return pa.Array.from_buffers(self.type, self.validity.length, buffers, children=[self.child.view()])

    @property
    def nbytes(self) -> int:
        return self.validity.nbytes + self.offsets.buffer.size + self.child.nbytes


class _FixedLists:
    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self.validity = _Validity()
        self.child = growing_column(type_.value_type)

    def append(self, array: pa.Array) -> None:
        self.validity.append(array)
        size = self.type.list_size
        self.child.append(array.values.slice(array.offset * size, len(array) * size))

    def view(self) -> pa.Array:
        children = [self.child.view()]
        return pa.Array.from_buffers(self.type, self.validity.length, [self.validity.view()], children=children)

    @property
    def nbytes(self) -> int:
        return self.validity.nbytes + self.child.nbytes


class _Maps:
    """A map, stored as a list of key-item structs."""

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self.validity = _Validity()
        self.offsets = _Offsets(4)
        self.keys = growing_column(type_.key_type)
        self.items = growing_column(type_.item_type)

    def append(self, array: pa.Array) -> None:
        self.validity.append(array)
        first, last = self.offsets.append(array)
        self.keys.append(array.keys.slice(first, last - first))
        self.items.append(array.items.slice(first, last - first))

    def view(self) -> pa.Array:
        entry_type = pa.struct([self.type.key_field, self.type.item_field])
        entries = pa.Array.from_buffers(
            entry_type, self.offsets.end, [None], children=[self.keys.view(), self.items.view()]
        )
        buffers = [self.validity.view(), self.offsets.buffer.view()]
        return pa.Array.from_buffers(self.type, self.validity.length, buffers, children=[entries])

    @property
    def nbytes(self) -> int:
        return self.validity.nbytes + self.offsets.buffer.size + self.keys.nbytes + self.items.nbytes


class _Structs:
    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self.validity = _Validity()
        self.children = [growing_column(type_.field(i).type) for i in range(type_.num_fields)]

    def append(self, array: pa.Array) -> None:
        self.validity.append(array)
        for i, child in enumerate(self.children):
            child.append(array.field(i))

    def view(self) -> pa.Array:
        children = [child.view() for child in self.children]
        return pa.Array.from_buffers(self.type, self.validity.length, [self.validity.view()], children=children)

    @property
    def nbytes(self) -> int:
        return self.validity.nbytes + sum(child.nbytes for child in self.children)


class _Chunks:
    """Any other type (dictionaries, unions, views, …): chunks, concatenated when read."""

    def __init__(self, type_: pa.DataType) -> None:
        self.type = type_
        self.chunks: list[pa.Array] = []

    def append(self, array: pa.Array) -> None:
        self.chunks.append(array)

    def view(self) -> pa.Array:
        if not self.chunks:
            return pa.nulls(0, self.type)
        if len(self.chunks) > 1:
            whole = pa.chunked_array(self.chunks, self.type).unify_dictionaries().combine_chunks()
            self.chunks = whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]
        return self.chunks[0]

    @property
    def nbytes(self) -> int:
        return sum(chunk.nbytes for chunk in self.chunks)


def growing_column(type_: pa.DataType) -> GrowingColumn:
    """The growing column for the type."""
    t = pa.types
    if t.is_boolean(type_):
        return _Boolean(type_)
    if t.is_string(type_) or t.is_binary(type_) or t.is_large_string(type_) or t.is_large_binary(type_):
        return _Strings(type_)
    if t.is_list(type_) or t.is_large_list(type_):
        return _Lists(type_)
    if t.is_fixed_size_list(type_):
        return _FixedLists(type_)
    if t.is_map(type_):
        return _Maps(type_)
    if t.is_struct(type_):
        return _Structs(type_)
    if t.is_primitive(type_) or t.is_decimal(type_) or t.is_fixed_size_binary(type_):
        return _Fixed(type_)
    return _Chunks(type_)


MOST_BYTES = 2**31 - 1  # the limit of 32-bit offsets of strings and lists


class RowStore:
    """Rows keep their position: 0, 1, 2, … in the order of arrival."""

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
        """Whether the rows can be appended and all rows still be read as one batch."""
        free = self._most_bytes - self.nbytes
        return bool(batch.get_total_buffer_size() <= free or batch.nbytes <= free)  # the first is a cheap upper bound

    def append(self, batch: pa.RecordBatch) -> int:
        """Append the rows; return the position of the first."""
        first = self._rows
        for column, array in zip(self._columns, batch.columns, strict=True):
            column.append(array)
        self._rows += batch.num_rows
        self.nbytes = sum(column.nbytes for column in self._columns)
        self._view = None
        return first

    def view(self) -> pa.RecordBatch:
        """All rows, without a copy. It stays valid when more rows are appended."""
        if self._view is None:
            self._view = put_together([c.view() for c in self._columns], self.schema, self._rows)
        return self._view

    def take(self, rows: Rows) -> pa.RecordBatch:
        return take_rows(self.view(), rows)
