"""Results by row number as rows: the columns of all inputs in their order, taken from batches at given positions.

    fixed width    one pass by a kernel, validity and booleans bit by bit; all columns of a result in one piece of
                   memory of Arrow's pool: touching new memory costs as much as filling it
    strings        two passes: how long they are, and what they are
    dictionaries   their codes, as fixed width; the dictionary is shared
    all others     (lists, structs, …) by Arrow

Where positions follow each other, columns are slices and nothing is copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.core.categories import without_order
from dovetail.core.join_types import JoinType
from dovetail.core.pandas_frames import NOTES, joined_notes
from dovetail.core.rows import OFFSETS, Matches, Rows, Side, put_together
from dovetail.errors import InputError
from dovetail.kernels.taking import is_run, take_bits, take_lengths, take_strings, take_values

Bytes = NDArray[np.uint8]

MOST_ROWS = 1 << 16  # in one batch
MOST_BYTES = 1 << 24
SMALLEST_BATCH = 1 << 18  # bytes, however small a budget is
RESULTS_SHARE = 32  # of a budget, for a batch of results; two are under way
LARGEST_ROWS = 1 << 20  # where all results are kept anyway: larger batches cost less
LARGEST_BYTES = 1 << 26
ALIGNED = 64  # bytes, as Arrow wants its buffers
FEW_ROWS = 2048  # for which a kernel for each column costs more than one call of Arrow
UNCHECKED = pc.TakeOptions(boundscheck=False)
WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}  # by bits
WORD = 64


def output_schema(left: pa.Schema, right: pa.Schema, suffix: str, how: JoinType = JoinType.INNER) -> pa.Schema:
    """The schema of a join's result; a right name that clashes gets the suffix."""
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
    """The columns of all inputs in their order; a name that several inputs have becomes alias_name.

    With `fold_case`, names that differ in case only are the same name.
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
    """How many rows of this width, taken from all of the batches, make a batch of a good size."""
    width = sum([int(batch.nbytes) // max(1, int(batch.num_rows)) for batch in batches])
    most_rows = MOST_ROWS if most_bytes <= MOST_BYTES else LARGEST_ROWS
    return max(1, min(most_rows, most_bytes // max(1, width)))


def fixed_rows(schema: pa.Schema, most_bytes: int = MOST_BYTES) -> int | None:
    """The same for all results of a schema whose columns have a fixed width; None if some have not."""
    try:
        bits = sum(int(type_.bit_width) for type_ in schema.types)
    except ValueError:
        return None
    return max(1, min(MOST_ROWS, most_bytes // max(1, bits // 8)))


def results_share(memory_bytes: int | None, *, spills: bool) -> tuple[int, int]:
    """The bytes of a batch of results, and what is set aside for those under way: one here, one with the caller.

    Nothing is set aside of a small budget, beside which two small batches do not count, nor where rows have to fit.
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

    Columns of inputs that have no rows in these results are null, or absent where the schema has no place for them.
    `share`: columns may be slices of the inputs.
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
    """The columns of these rows, and how many there are; in several parts where strings are too long for one."""
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
    """Rows of one side alone as rows of the output schema, nulls in the columns of the other."""
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
    """Left rows with right rows, or with nulls where `rights` is negative, in this order."""
    most_rows = fitting_rows(left, right, most_bytes=most_bytes)
    mine, theirs = Gatherer(left, share=share), PaddedGatherer(right)
    waiting = [slice(start, start + most_rows) for start in range(0, len(lefts), most_rows)][::-1]
    while waiting:
        part = waiting.pop()
        size = len(lefts[part])
        try:
            columns = [*gather([(mine, lefts[part])]), *theirs.take(rights[part])]
        except OverflowError:  # strings that are too long for one column
            if size == 1:
                raise
            middle = part.start + size // 2
            waiting += [slice(middle, part.start + size), slice(part.start, middle)]
        else:
            yield put_together(columns, schema, size)


def drop_last_columns(rows: pa.RecordBatch, extra: int) -> pa.RecordBatch:
    """The rows without their last `extra` columns."""
    return rows.select(range(rows.num_columns - extra)) if extra else rows


def gather(taken: Iterable[tuple[Gatherer, Rows]]) -> list[pa.Array]:
    """The columns of all these rows, one batch after the other."""
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
        """Bytes of shared memory that its columns take, at most."""
        return 0 if len(rows) < FEW_ROWS else sum(column.nbytes(len(rows)) for column in self._columns)

    def take(self, rows: Rows, memory: _Memory) -> list[pa.Array]:
        if self._share and is_run(rows):
            return list(self._batch.slice(int(rows[0]), len(rows)).columns)
        if len(rows) < FEW_ROWS:
            return _take_few(self._batch, rows)
        return [column.take(rows, memory) for column in self._columns]


class PaddedGatherer:
    """The columns of a batch, to take rows from; a negative row is a row of nulls."""

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
    """Whether a column without nulls has its values in buffers of its own."""
    is_wide = column.type.id in OFFSETS or _bits(column.type) is not None
    return is_wide and not column.null_count and not isinstance(column.type, pa.BaseExtensionType)


def _with_validity(column: pa.Array, valid: pa.Buffer) -> pa.Array:
    """A column that was just taken, without some of its values."""
    buffers = [valid, *column.buffers()[1:]]
    if isinstance(column, pa.DictionaryArray):
        return pa.DictionaryArray.from_buffers(column.type, len(column), buffers, column.dictionary)
    return pa.Array.from_buffers(column.type, len(column), buffers)


def _take_few(batch: pa.RecordBatch, rows: Rows | pa.Array) -> list[pa.Array]:
    try:
        return list(pc.call_function("take", [batch, pa.array(rows)], UNCHECKED).columns)
    except pa.ArrowInvalid as error:  # offsets of 32 bits
        raise OverflowError(str(error)) from error


class _Memory:
    """Memory that is handed out from its start to its end."""

    def __init__(self, size: int) -> None:
        self._buffer = pa.allocate_buffer(size)  # of Arrow's pool: what earlier results have freed is used again
        self._bytes = np.frombuffer(self._buffer, np.uint8)
        self._used = 0

    def cut(self, size: int) -> tuple[Bytes, pa.Buffer]:
        start, self._used = self._used, self._used + _aligned(size)
        return self._bytes[start : start + size], self._buffer.slice(start, size)


class _Column(Protocol):
    def nbytes(self, rows: int) -> int: ...
    def take(self, rows: Rows, memory: _Memory) -> pa.Array: ...


def _column(column: pa.Array) -> _Column:
    if isinstance(column.type, pa.BaseExtensionType):
        return _Other(column)
    if _bits(column.type) is not None:
        return _FixedWidth(column)
    return _Strings(column) if column.type.id in OFFSETS else _Other(column)


class _Other:
    """A column that Arrow takes from."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def nbytes(self, rows: int) -> int:
        return 0

    def take(self, rows: Rows, memory: _Memory) -> pa.Array:
        return pc.take(self._column, pa.array(rows), boundscheck=False)


class _Validity:
    """Which values of a column are not null, if some are."""

    def __init__(self, column: pa.Array) -> None:
        self._bits = _array(column.buffers()[0]) if column.null_count else None
        self._offset = column.offset

    def nbytes(self, rows: int) -> int:
        return 0 if self._bits is None else _aligned(_bitmap(rows))

    def take(self, rows: Rows, memory: _Memory) -> tuple[pa.Buffer | None, int]:
        """As a bitmap, and how many are null."""
        if self._bits is None:
            return None, 0
        taken, buffer = memory.cut(_bitmap(len(rows)))
        nulls = len(rows) - take_bits(self._bits, self._offset, rows, taken)
        return buffer if nulls else None, nulls


class _Strings:
    """A column of strings or bytes of any length."""

    def __init__(self, column: pa.Array) -> None:
        _, offsets, data = column.buffers()
        self._column = column
        self._validity = _Validity(column)
        self._offsets = _array(offsets).view(OFFSETS[column.type.id])[column.offset :]
        self._data = _array(data)

    def nbytes(self, rows: int) -> int:
        return self._validity.nbytes(rows) + _aligned(self._ends_size(rows))

    def take(self, rows: Rows, memory: _Memory) -> pa.Array:
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
        values = self._split(_array(column.buffers()[1]))
        self._values = values if bits == 1 else values[column.offset :]

    def nbytes(self, rows: int) -> int:
        return self._validity.nbytes(rows) + _aligned(self._size(rows))

    def take(self, rows: Rows, memory: _Memory) -> pa.Array:
        validity, nulls = self._validity.take(rows, memory)
        taken, data = memory.cut(self._size(len(rows)))
        if self._bits == 1:
            take_bits(self._values, self._offset, rows, taken)
        else:
            take_values(self._values, rows, self._split(taken))
        buffers = [validity, data]
        if self._dictionary is None:
            return pa.Array.from_buffers(self._type, len(rows), buffers, nulls)
        return pa.DictionaryArray.from_buffers(self._type, len(rows), buffers, self._dictionary, nulls)

    def _size(self, rows: int) -> int:
        return _bitmap(rows) if self._bits == 1 else rows * self._bits // 8

    def _split(self, data: Bytes) -> NDArray[np.unsignedinteger]:
        """Bytes as values: numbers, or rows of words."""
        if self._bits == 1:
            return data
        if self._bits in WORDS:
            return data[: len(data) // (self._bits // 8) * (self._bits // 8)].view(WORDS[self._bits])
        words = self._bits // WORD
        return data[: len(data) // (8 * words) * 8 * words].view(np.uint64).reshape(-1, words)


@lru_cache(maxsize=1024)
def _bits(type_: pa.DataType) -> int | None:
    """How many bits a value has, if that many can be taken by a kernel."""
    t = pa.types
    if t.is_dictionary(type_):
        return _bits(type_.index_type)
    if t.is_null(type_) or t.is_nested(type_):
        return None
    try:
        bits = int(type_.bit_width)
    except ValueError:  # it has no fixed width
        return None
    return bits if bits == 1 or bits in WORDS or (bits and bits % WORD == 0) else None


def _array(buffer: pa.Buffer | None) -> Bytes:
    return np.frombuffer(buffer if buffer is not None else b"", np.uint8)


def _bitmap(rows: int) -> int:
    return -(-rows // 8)


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
