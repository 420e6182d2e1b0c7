"""Smallest and largest values of any ordered type, by way of whole numbers that have the same order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.kernels.sorting import invert, sort_codes
from dovetail.keys import is_fixed, order_codes
from dovetail.matchers.listed import NONE, Words


@dataclass(frozen=True, slots=True)
class Ranks:
    """The smaller the rank, the smaller (or the larger) the value. Null has the rank NONE."""

    values: pa.Array
    ranks: Words

    def values_at(self, ranks: Words) -> pa.Array:
        """The values that have these ranks."""
        rows = np.zeros(len(self.values), np.int64)
        some = self.ranks != NONE
        rows[self.ranks[some]] = np.flatnonzero(some)
        missing = ranks == NONE
        wanted = np.zeros(len(ranks), np.int64)
        wanted[~missing] = rows[ranks[~missing]]
        return self.values.take(pa.array(wanted, mask=missing))


def rank(values: pa.Array, largest_first: bool) -> Ranks:
    """Ranks from 0 on. NaN is the largest number."""
    if is_fixed(values.type):
        ranks = invert(sort_codes(order_codes(values).values).order).astype(np.int64)
    else:
        ranks = np.asarray(pc.rank(values, tiebreaker="dense")).astype(np.int64) - 1
    if largest_first:
        ranks = len(values) - 1 - ranks
    if values.null_count:
        ranks[np.asarray(values.is_null())] = NONE
    return Ranks(values, ranks)
