"""Structs and lists as byte strings that sort as the values do: memcomparable keys, as in RocksDB.

    value a < b   <=>   key(a) < key(b)            value a = b   <=>   key(a) = key(b)

    number, date, …   present  8 bytes, big-endian, sign flipped       (fewer for narrow types)
    string, binary    present  its bytes, 00 as 00 FF          00
    struct            present  its fields, one after the other
    list              present  its elements, one after the other   00

The order is Spark's: field by field, element by element, null before everything else and equal to null, a list before
longer lists that start with it. A null is encoded as another first byte and the key of the type's empty value, so keys
of fixed-width types have a fixed width. No part begins with FF, which is why one 00 can end a string.
"""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.condition import types
from dovetail.condition.casts import decode, elements, validity
from dovetail.core.buffers import byte_strings, decimal_words
from dovetail.core.codes import is_fixed, order_codes
from dovetail.errors import ConditionError

t = pa.types

Bytes = NDArray[np.uint8]
Words = NDArray[np.int64]

END, NULL, PRESENT = 0, 1, 2  # the end of a list comes before any element
ESCAPED = b"\0\xff"
SIGN = 0x80
BLOCK = 1 << 14  # rows per block: intermediate arrays stay in the cache
NARROW = {pa.bool_(): 1, pa.int8(): 1, pa.int16(): 2, pa.int32(): 4, pa.date32(): 4}


class Strings(NamedTuple):
    """Byte strings of any length: `data[offsets[i]:offsets[i + 1]]`."""

    offsets: Words
    data: Bytes


Part = Bytes | Strings
"""One byte string per row; a row of a matrix, if the type fixes the length."""


def sort_keys(array: pa.Array) -> pa.Array:
    """The keys of a column of structs or lists; null if the struct or list itself is null."""
    blocks = [_keys(decode(array.slice(start, BLOCK))) for start in range(0, max(len(array), 1), BLOCK)]
    return blocks[0] if len(blocks) == 1 else pa.concat_arrays(blocks)


def _keys(array: pa.Array) -> pa.Array:
    strings = _strings(_part(array))
    buffers = [validity(array), pa.py_buffer(strings.offsets), pa.py_buffer(strings.data)]
    return pa.Array.from_buffers(types.SORT_KEY, len(array), buffers)


def _part(array: pa.Array) -> Part:
    """A byte that says whether there is a value, then the value."""
    first = _constant(PRESENT, len(array))
    if array.null_count:
        first[~np.asarray(array.is_valid())] = NULL
    return _join([first, *_value(array)])


def _value(array: pa.Array) -> list[Part]:
    type_ = array.type
    if t.is_struct(type_):
        return [_part(decode(field)) for field in array.flatten()]  # flatten: fields of a null struct become null
    if types.is_list(type_):
        offsets, values = elements(array)
        strings = _strings(_part(decode(values)))
        return [Strings(strings.offsets[offsets], strings.data), _constant(END, len(array))]
    if types.is_text(type_) or types.is_bytes(type_):
        return [_escape(array), _constant(END, len(array))]
    if t.is_null(type_):
        return []
    lines = _numbers(array)
    if array.null_count:
        lines[~np.asarray(array.is_valid())] = 0
    return [lines]


def _numbers(array: pa.Array) -> Bytes:
    """Values of a fixed width, big-endian; negative numbers come first."""
    type_ = array.type
    if is_fixed(type_):
        width = NARROW.get(type_, 8)
        lines = order_codes(array).values.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 8 - width :]
    elif t.is_decimal(type_):
        width = type_.bit_width // 8
        lines = decimal_words(array).view(np.uint8).reshape(-1, width)[:, ::-1].copy()
    else:
        raise ConditionError(f"values of type {type_} cannot be compared. Compare a part of them, or cast them.")
    lines[:, 0] ^= SIGN
    return lines


def _escape(array: pa.Array) -> Strings:
    texts = pc.fill_null(array.cast(pa.large_binary()), b"")
    strings = _content(texts)
    return strings if strings.data.all() else _content(pc.replace_substring(texts, b"\0", ESCAPED))


def _content(array: pa.Array) -> Strings:
    bounds, data = byte_strings(array)
    return Strings(bounds - bounds[0], data[bounds[0] : bounds[-1]])


def _constant(byte: int, rows: int) -> Bytes:
    return np.full((rows, 1), byte, np.uint8)


def _join(parts: list[Part]) -> Part:
    """The parts of each row, concatenated."""
    if _all_lines(parts):
        return np.concatenate(parts, axis=1)
    sizes = sum(_sizes(part) for part in parts)
    offsets = np.zeros(len(_sizes(parts[0])) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.empty(offsets[-1], np.uint8)
    places = offsets[:-1].copy()
    for part in parts:
        if isinstance(part, Strings):
            data[np.repeat(places - part.offsets[:-1], _sizes(part)) + np.arange(len(part.data))] = part.data
        else:
            data[places[:, None] + np.arange(part.shape[1])] = part
        places += _sizes(part)
    return Strings(offsets, data)


def _all_lines(parts: list[Part]) -> TypeGuard[list[Bytes]]:
    return not any(isinstance(part, Strings) for part in parts)


def _sizes(part: Part) -> Words:
    return np.diff(part.offsets) if isinstance(part, Strings) else np.full(len(part), part.shape[1])


def _strings(part: Part) -> Strings:
    if isinstance(part, Strings):
        return part
    rows, width = part.shape
    return Strings(np.arange(rows + 1) * width, part.ravel())
