"""The buffers of Arrow columns as NumPy arrays, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
PLAIN = frozenset(type_.id for type_ in (*INTEGERS, pa.float32(), pa.float64()))
"""Types whose Arrow buffers are NumPy arrays, by type id: types defined in Python have no hash."""
OFFSETS = {
    **dict.fromkeys((pa.string().id, pa.binary().id), np.int32),
    **dict.fromkeys((pa.large_string().id, pa.large_binary().id), np.int64),
}
"""The offset types of strings and bytes, by type id."""


def buffer_bytes(buffer: pa.Buffer | None) -> Bytes:
    """The bytes of a buffer; empty if there is no buffer, as in many empty columns."""
    return np.frombuffer(buffer if buffer is not None else b"", np.uint8)


def byte_strings(array: pa.Array) -> tuple[NDArray[Any], Bytes]:
    """The offsets of a column of strings or bytes, and the bytes of all its values."""
    dtype = OFFSETS[array.type.id]
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(1, dtype), np.empty(0, np.uint8)
    return np.frombuffer(offsets, dtype)[array.offset : array.offset + len(array) + 1], buffer_bytes(data)


def decimal_words(array: pa.Array) -> NDArray[np.int64]:
    """The 64-bit words of decimals, the lowest of each first. An empty column has a buffer of any size, or none."""
    if not len(array):
        return np.empty(0, np.int64)
    words = array.type.bit_width // 64
    return np.frombuffer(array.buffers()[1], np.int64, words * len(array), array.offset * array.type.bit_width // 8)
