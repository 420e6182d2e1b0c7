"""Groups rows by equal keys: null is a key, all NaN are one key, -0.0 equals 0.0.

Rows are ordered by group, so the rows of a group are consecutive. Groups and their rows are then a join of
`kernels.windows`, which computes sums and minima.

Sums of integers and decimals are exact: each number is split into limbs of 32 bits, which are summed separately.

    number  =  limbs[0]  +  limbs[1] * 2^32  +  limbs[2] * 2^64  +  limbs[3] * 2^96  + …      each limb in an int64

A limb has room for the sum of 2^31 others; then its bits above the lowest 32 are carried to the next one. If the
numbers are so small that their sum fits in 64 bits, a single limb holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dovetail.condition.sort_keys import sort_keys
from dovetail.core.buffers import decimal_words
from dovetail.core.codes import is_fixed, order_codes
from dovetail.core.rows import Rows
from dovetail.kernels import windows
from dovetail.kernels.sorting import row_type, sort_codes
from dovetail.kernels.windows import Windows
from dovetail.matching.kernel_pairs import Numbers, Prepared, Words

BITS = 32
MASK = np.int64(2**BITS - 1)
SIGN_BIT = 63
TOO_LARGE = 1 << SIGN_BIT
DECIMAL_LIMBS = 4
HIGHEST = np.int64(10**38 >> 64)  # the upper word of the largest decimal


@dataclass(frozen=True, slots=True)
class Groups:
    members: Windows  # "left" rows are groups, "right" rows their rows

    @property
    def sizes(self) -> Rows:
        return self.members.ends - self.members.starts

    @property
    def first_rows(self) -> Rows:
        """One row of each group; no group may be empty."""
        return self.members.right[self.members.starts]

    def sum(self, numbers: Numbers) -> Numbers:
        """The sum of each group; integers must fit."""
        return windows.row_sums(self.members, numbers)

    def sum_limbs(self, limbs: Sequence[Words]) -> list[Words]:
        """The exact sum of each group."""
        most = int(self.sizes.max(initial=0))
        return [self.sum(limb) for limb in (limbs if limbs_fit(limbs, most) else propagate_carries(limbs))]

    def smallest(self, ranks: Words) -> Words:
        """The smallest rank of each group; NONE if it is empty."""
        return Prepared(windows, self.members).row_smallest(ranks)


def one_group(rows: int) -> Groups:
    """One group of all rows, even if there are none."""
    none, last = np.zeros(1, row_type(rows)), np.full(1, rows, row_type(rows))
    return Groups(Windows(none, np.arange(rows, dtype=none.dtype), none, last))


def each_row(rows: int) -> Groups:
    """One group per row."""
    numbers = np.arange(rows + 1, dtype=row_type(rows + 1))
    return Groups(Windows(numbers[:-1], numbers[:-1], numbers[:-1], numbers[1:]))


def group(keys: Sequence[pa.Array]) -> Groups:
    """Groups of rows that are equal in all keys."""
    numbers = _dense(keys[0])
    for key in keys[1:]:
        more = _dense(key)
        numbers = _dense(pa.array(numbers * (int(more.max(initial=0)) + 1) + more))
    order = sort_codes(numbers).order
    sizes = np.bincount(numbers)
    ends = np.cumsum(sizes).astype(order.dtype)
    return Groups(Windows(np.arange(len(ends)), order, ends - sizes.astype(order.dtype), ends))


def _dense(key: pa.Array) -> Words:
    """Numbers the distinct keys from 0 on, without gaps."""
    if pa.types.is_nested(key.type):
        key = sort_keys(key)
    elif is_fixed(key.type):
        codes = order_codes(key)
        key = pa.array(codes.values, mask=None if codes.valid is None else ~codes.valid)
    return np.asarray(pc.dictionary_encode(key, null_encoding="encode").indices).astype(np.int64)


def split_into_limbs(array: pa.Array, times: int) -> list[Words]:
    """The numbers of an integer or decimal column (unscaled; 0 for null) as limbs that can be summed the given number
    of times."""
    if pa.types.is_uint64(array.type):
        array = array.cast(pa.decimal128(20, 0))
    if not is_fixed(array.type):
        return _split_decimals(array)
    numbers = order_codes(array).values
    if array.null_count:
        numbers = np.where(np.asarray(array.is_valid()), numbers, 0)
    return [numbers] if limbs_fit([numbers], times) else [numbers & MASK, numbers >> BITS]


def _split_decimals(array: pa.Array) -> list[Words]:
    words = decimal_words(array)
    if array.null_count:
        words = np.where(np.repeat(np.asarray(array.is_valid()), 2), words, 0)
    low, high = words[::2], words[1::2]
    return [low & MASK, (low >> BITS) & MASK, high & MASK, high >> BITS]


def limbs_fit(limbs: Sequence[Words], times: int) -> bool:
    """Whether this many of these limbs can be summed within 64 bits."""
    largest = max(max(int(limb.max(initial=0)), -int(limb.min(initial=0))) for limb in limbs)
    return largest * times < TOO_LARGE


def propagate_carries(limbs: Sequence[Words]) -> list[Words]:
    """The same numbers with one more limb; all limbs but the last are from 0 to 2^32 - 1."""
    tidy = []
    carry = np.zeros(len(limbs[0]), np.int64)
    for limb in limbs:
        low = (limb & MASK) + carry  # at most 33 bits and a sign
        tidy.append(low & MASK)
        carry = (limb >> BITS) + (low >> BITS)
    return [*tidy, carry]


def decimals_of(limbs: Sequence[Words], scale: int, valid: NDArray[np.bool_]) -> pa.Array | None:
    """The numbers as decimal128(38, scale), null where not valid; None if one has more than 38 digits."""
    tidy = propagate_carries(limbs)
    while len(tidy) <= DECIMAL_LIMBS:
        *others, last = tidy
        tidy = [*others, last & MASK, last >> SIGN_BIT]
    sign = -(tidy[DECIMAL_LIMBS - 1] >> (BITS - 1))  # the sign of a 128-bit number
    *between, last = tidy[DECIMAL_LIMBS:]
    low, high = tidy[0] | tidy[1] << BITS, tidy[2] | tidy[3] << BITS
    too_long = any((limb != sign & MASK).any() for limb in between) or (last != sign).any()
    if too_long or (high > HIGHEST).any() or (high < ~HIGHEST).any():
        return None
    words = np.stack([low, high], axis=1)
    mask = pa.array(valid).buffers()[1]
    array = pa.Array.from_buffers(pa.decimal128(38, scale), len(words), [mask, pa.py_buffer(words)])
    return array if _is_valid(array) else None


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:  # a few numbers whose upper word is the largest possible
        return False
    return True
