"""Key columns as numbers to route and sweep by: not all values are told apart, but their order is never turned around.

a <= b   =>   code(a) <= code(b)
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.keys import SIGN, float_codes, is_fixed, order_codes

Words = NDArray[np.int64]
Floats = NDArray[np.float64]

PREFIX = 8  # bytes of a string


def rough_codes(array: pa.Array) -> Words:
    """Codes of a column without nulls, of any type that has an order."""
    if is_fixed(array.type):
        return order_codes(array).values
    if pa.types.is_decimal(array.type):
        return float_codes(numbers(array))
    return _prefixes(array)


def numbers(array: pa.Array) -> Floats:
    """The numbers of a column without nulls; days and time units for dates and times, unscaled values of decimals."""
    type_ = array.type
    if pa.types.is_floating(type_):
        return np.asarray(array.cast(pa.float64()))
    if pa.types.is_decimal(type_) and not is_fixed(type_):
        scaled: Floats = np.asarray(array.cast(pa.float64())) * 10.0**type_.scale
        return scaled
    if pa.types.is_uint64(type_):  # its codes are so far below zero that small numbers would be one
        return np.asarray(array).astype(np.float64)
    return order_codes(array).values.astype(np.float64)


def _prefixes(array: pa.Array) -> Words:
    """The first bytes of strings, as they are compared: byte by byte, the shorter one first."""
    wide = pc.cast(array, pa.large_binary())
    offsets = np.frombuffer(wide.buffers()[1], np.int64)[wide.offset : wide.offset + len(wide) + 1]
    buffer = wide.buffers()[2]
    data = np.frombuffer(buffer if buffer is not None else b"", np.uint8)
    places = offsets[:-1, None] + np.arange(PREFIX)
    inside = places < offsets[1:, None]
    letters = np.zeros(places.shape, np.uint8)
    letters[inside] = data[places[inside]]
    return letters.view(">u8").ravel().astype(np.uint64).view(np.int64) ^ SIGN
