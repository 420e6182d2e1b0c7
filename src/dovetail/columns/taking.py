"""Takes rows at given positions, from columns of every type.

    few rows       by Arrow, all columns in one call; plain numbers only: by NumPy
    fixed width    one pass by a kernel, validity and booleans bit by bit; all columns of a result in one piece of
                   memory of Arrow's pool: touching new memory costs as much as filling it
    strings        two passes: lengths, then bytes
    dictionaries   their codes, as fixed width; the dictionary is shared
    all others     (lists, structs, …) by Arrow

If positions are consecutive and the caller allows it, columns are slices and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.columns.batches import put_together
from dovetail.core.buffers import OFFSETS, PLAIN, Bytes, byte_strings
from dovetail.core.rows import Rows
from dovetail.kernels.taking import is_run, take_bits, take_lengths, take_strings, take_values

ALIGNED = 64  # bytes; the alignment that Arrow recommends for buffers
FEW_ROWS = 2048  # below this, one call of Arrow costs less than a kernel per column
UNCHECKED = pc.TakeOptions(boundscheck=False)
WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}  # by bits
WORD = 64


def take_rows(batch: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    """The rows at these positions."""
    return put_together(take_columns(batch, rows), batch.schema, len(rows))


def take_columns(batch: pa.RecordBatch, rows: Rows) -> list[pa.Array]:
    """The columns of the rows at these positions."""
    return gather([(Gatherer(batch), rows)])


def gather(taken: Iterable[tuple[Gatherer, Rows]]) -> list[pa.Array]:
    """The columns of all these rows, in the order of the batches."""
    sides = list(taken)
    memory = _Memory(sum([gatherer.nbytes(rows) for gatherer, rows in sides]))
    return [column for gatherer, rows in sides for column in gatherer.take(rows, memory)]


class Gatherer:
    """The columns of a batch, to take rows from. `share`: results may be slices, which keep the batch alive."""

    def __init__(self, batch: pa.RecordBatch, *, share: bool = False) -> None:
        self._batch = batch
        self._share = share

    @cached_property
    def _columns(self) -> list[_Column]:
        return [_column(column) for column in self._batch.columns]

    def nbytes(self, rows: Rows) -> int:
        """Upper bound for the bytes of shared memory that its columns take."""
        return 0 if len(rows) < FEW_ROWS else sum(column.nbytes(len(rows)) for column in self._columns)

    def take(self, rows: Rows, memory: _Memory) -> list[pa.Array]:
        if self._share and is_run(rows):
            return list(self._batch.slice(int(rows[0]), len(rows)).columns)
        if len(rows) < FEW_ROWS:
            return _take_plain(self._batch, rows) or _take_few(self._batch, rows)
        fixed: list[Filled] = []
        columns = [column.take(rows, memory, fixed) for column in self._columns]
        take_values(fixed, rows)
        return columns


class PaddedGatherer:
    """The columns of a batch, to take rows from; a negative row number gives a row of nulls."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._gatherer = Gatherer(batch)
        self._plain = [_is_plain(column) for column in batch.columns]

    def take(self, rows: Rows) -> list[pa.Array]:
        missing = rows < 0
        if not missing.any():
            return gather([(self._gatherer, rows)])
        if not self._batch.num_rows:
            return [pa.nulls(len(rows), column.type) for column in self._batch.columns]
        if len(rows) < FEW_ROWS or not all(self._plain):
            return list(_take_few(self._batch, pa.array(rows, mask=missing)))
        valid = pa.array(~missing).buffers()[1]
        return [_with_validity(column, valid) for column in gather([(self._gatherer, np.where(missing, 0, rows))])]


def _is_plain(column: pa.Array) -> bool:
    """Whether a column has no nulls and its values are in plain buffers."""
    is_wide = column.type.id in OFFSETS or _bits(column.type) is not None
    return is_wide and not column.null_count and not isinstance(column.type, pa.BaseExtensionType)


def _with_validity(column: pa.Array, valid: pa.Buffer) -> pa.Array:
    """A column that was just taken, with nulls where `valid` says so."""
    buffers = [valid, *column.buffers()[1:]]
    if isinstance(column, pa.DictionaryArray):
        return pa.DictionaryArray.from_buffers(column.type, len(column), buffers, column.dictionary)
    return pa.Array.from_buffers(column.type, len(column), buffers)


def _take_plain(batch: pa.RecordBatch, rows: Rows) -> list[pa.Array]:
    """Takes rows from plain numbers by NumPy, which costs less per call than Arrow; empty if some are not plain."""
    columns = []
    for number in range(batch.num_columns):
        column = batch.column(number)
        if column.type.id not in PLAIN or column.null_count:
            return []
        columns.append(column)
    taken = [np.asarray(column).take(rows) for column in columns]  # indexing would make wide copies of narrow rows
    buffers = [[None, pa.py_buffer(values)] for values in taken]
    return [pa.Array.from_buffers(c.type, len(rows), b) for c, b in zip(columns, buffers, strict=True)]


def _take_few(batch: pa.RecordBatch, rows: Rows | pa.Array) -> list[pa.Array]:
    try:
        return list(pc.call_function("take", [batch, pa.array(rows)], UNCHECKED).columns)
    except pa.ArrowInvalid as error:  # 32-bit offsets
        raise OverflowError(str(error)) from error


class _Memory:
    """Memory that is handed out from start to end."""

    def __init__(self, size: int) -> None:
        self._buffer = pa.allocate_buffer(size)  # from Arrow's pool, which reuses memory freed by earlier results
        self._bytes = np.frombuffer(self._buffer, np.uint8)
        self._used = 0

    def cut(self, size: int) -> tuple[Bytes, pa.Buffer]:
        start, self._used = self._used, self._used + _aligned(size)
        return self._bytes[start : start + size], self._buffer.slice(start, size)


Values = NDArray[np.unsignedinteger]
Filled = tuple[Values, Values]
"""Values of a column, and where the taken ones are written."""


class _Column(Protocol):
    def nbytes(self, rows: int) -> int: ...
    def take(self, rows: Rows, memory: _Memory, fixed: list[Filled]) -> pa.Array:
        """The values at these rows. Those in `fixed` are filled in later, for all columns at once."""


def _column(column: pa.Array) -> _Column:
    if isinstance(column.type, pa.BaseExtensionType):
        return _Other(column)
    if _bits(column.type) is not None:
        return _FixedWidth(column)
    return _Strings(column) if column.type.id in OFFSETS else _Other(column)


class _Other:
    """A column whose rows are taken by Arrow."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def nbytes(self, rows: int) -> int:
        return 0

    def take(self, rows: Rows, memory: _Memory, fixed: list[Filled]) -> pa.Array:
        return pc.take(self._column, pa.array(rows), boundscheck=False)


class _Validity:
    """Which values of a column are not null, if it has nulls."""

    def __init__(self, column: pa.Array) -> None:
        self._bits = np.frombuffer(column.buffers()[0], np.uint8) if column.null_count else None
        self._offset = column.offset

    def nbytes(self, rows: int) -> int:
        return 0 if self._bits is None else _aligned(_bitmap(rows))

    def take(self, rows: Rows, memory: _Memory) -> tuple[pa.Buffer | None, int]:
        """The bitmap, and how many values are null."""
        if self._bits is None:
            return None, 0
        taken, buffer = memory.cut(_bitmap(len(rows)))
        nulls = len(rows) - take_bits(self._bits, self._offset, rows, taken)
        return buffer if nulls else None, nulls


class _Strings:
    """A column of strings or bytes of variable length."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column
        self._validity = _Validity(column)
        self._offsets, self._data = byte_strings(column)

    def nbytes(self, rows: int) -> int:
        return self._validity.nbytes(rows) + _aligned(self._ends_size(rows))

    def take(self, rows: Rows, memory: _Memory, fixed: list[Filled]) -> pa.Array:
        cut, ends_buffer = memory.cut(self._ends_size(len(rows)))
        ends = cut.view(self._offsets.dtype)
        size = take_lengths(self._offsets, rows, ends)
        if size is None:
            raise OverflowError("strings of a batch have more bytes than 32 bits can count")
        taken, buffer = _Memory(size).cut(size)
        take_strings(self._offsets, self._data, rows, ends, taken)
        validity, nulls = self._validity.take(rows, memory)
        return pa.Array.from_buffers(self._column.type, len(rows), [validity, ends_buffer, buffer], nulls)

    def _ends_size(self, rows: int) -> int:
        return (rows + 1) * self._offsets.dtype.itemsize


class _FixedWidth:
    """A column whose values all have the same number of bits: 1, a number's, or several words."""

    def __init__(self, column: pa.Array) -> None:
        self._type = column.type
        bits = _bits(column.type)
        assert bits is not None
        self._bits = bits
        self._offset = column.offset
        self._dictionary = column.dictionary if pa.types.is_dictionary(column.type) else None
        self._validity = _Validity(column)
        values = self._split(np.frombuffer(column.buffers()[1], np.uint8))
        self._values = values if bits == 1 else values[column.offset :]

    def nbytes(self, rows: int) -> int:
        return self._validity.nbytes(rows) + _aligned(self._size(rows))

    def take(self, rows: Rows, memory: _Memory, fixed: list[Filled]) -> pa.Array:
        validity, nulls = self._validity.take(rows, memory)
        taken, data = memory.cut(self._size(len(rows)))
        if self._bits == 1:
            take_bits(self._values, self._offset, rows, taken)
        else:
            fixed.append((self._values, self._split(taken)))
        buffers = [validity, data]
        if self._dictionary is None:
            return pa.Array.from_buffers(self._type, len(rows), buffers, nulls)
        return pa.DictionaryArray.from_buffers(self._type, len(rows), buffers, self._dictionary, nulls)

    def _size(self, rows: int) -> int:
        return _bitmap(rows) if self._bits == 1 else rows * self._bits // 8

    def _split(self, data: Bytes) -> Values:
        """Bytes as values: numbers, or rows of words."""
        if self._bits == 1:
            return data
        if self._bits in WORDS:
            return data[: len(data) // (self._bits // 8) * (self._bits // 8)].view(WORDS[self._bits])
        words = self._bits // WORD
        return data[: len(data) // (8 * words) * 8 * words].view(np.uint64).reshape(-1, words)


@lru_cache(maxsize=1024)
def _bits(type_: pa.DataType) -> int | None:
    """The number of bits of a value, if a kernel can take values of that size."""
    t = pa.types
    if t.is_dictionary(type_):
        return _bits(type_.index_type)
    if t.is_null(type_) or t.is_nested(type_):
        return None
    try:
        bits = int(type_.bit_width)
    except ValueError:  # the type has no fixed width
        return None
    return bits if bits == 1 or bits in WORDS or (bits and bits % WORD == 0) else None


def _bitmap(rows: int) -> int:
    return -(-rows // 8)


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
