"""Rows in groups of equal keys: null is a key, all NaN are one, -0.0 is 0.0.

The rows of a group are neighbours in the order of groups, so groups and their rows are a join of `kernels.windows`,
which adds up and finds the smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.aggregates.limbs import fits, propagate_carries
from dovetail.condition.sort_keys import sort_keys
from dovetail.core.codes import is_fixed, order_codes
from dovetail.core.rows import Rows
from dovetail.kernels import windows
from dovetail.kernels.sorting import row_type, sort_codes
from dovetail.kernels.windows import Windows
from dovetail.matching.kernel_pairs import Numbers, Prepared, Words


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
        return [self.sum(limb) for limb in (limbs if fits(limbs, most) else propagate_carries(limbs))]

    def smallest(self, ranks: Words) -> Words:
        """The smallest rank of each group; NONE if it is empty."""
        return Prepared(windows, self.members).row_smallest(ranks)


def one_group(rows: int) -> Groups:
    """All rows together, be there any or not."""
    none, last = np.zeros(1, row_type(rows)), np.full(1, rows, row_type(rows))
    return Groups(Windows(none, np.arange(rows, dtype=none.dtype), none, last))


def group(keys: Sequence[pa.Array]) -> Groups:
    """Rows that are equal in all keys together."""
    numbers = _dense(keys[0])
    for key in keys[1:]:
        more = _dense(key)
        numbers = _dense(pa.array(numbers * (int(more.max(initial=0)) + 1) + more))
    order = sort_codes(numbers).order
    sizes = np.bincount(numbers)
    ends = np.cumsum(sizes).astype(order.dtype)
    return Groups(Windows(np.arange(len(ends)), order, ends - sizes.astype(order.dtype), ends))


def _dense(key: pa.Array) -> Words:
    """Equal keys as equal numbers, from 0 on without gaps."""
    if pa.types.is_nested(key.type):
        key = sort_keys(key)
    elif is_fixed(key.type):
        codes = order_codes(key)
        key = pa.array(codes.values, mask=None if codes.valid is None else ~codes.valid)
    return np.asarray(pc.dictionary_encode(key, null_encoding="encode").indices).astype(np.int64)
