"""For each left row: how many partners it has, sums of their numbers, the smallest of their codes.

part without checks    one kernel per sum, O(n log n), whatever the number of pairs
part with checks       its candidates, chunk by chunk; the pairs that pass are added up and forgotten
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.batch import Rows
from dovetail.matchers.listed import NONE, Numbers, Words
from dovetail.matchers.parts import ROOM, Part, Parts


@dataclass(frozen=True, slots=True)
class Partners:
    """One entry per left row in each array."""

    counts: Words
    sums: list[Numbers]
    smallest: list[Words]  # NONE where all partners have that code, or where there are none


def over_partners(matcher: Parts, numbers: Sequence[Numbers], codes: Sequence[Words]) -> Partners:
    """Add up each of `numbers` and take the smallest of each of `codes`, both one per right row.

    Integers must be so small that no sum over all right rows leaves 64 bits.
    """
    rows = matcher.batches[0].num_rows
    found = Partners(
        np.zeros(rows, np.int64),
        [np.zeros(rows, column.dtype) for column in numbers],
        [np.full(rows, NONE) for _ in codes],
    )
    with np.errstate(over="ignore", invalid="ignore"):  # infinities are added up like other numbers
        for part in matcher.parts:
            if part.checks or ((numbers or codes) and not part.listed.adds_up):
                for lefts, rights in Parts(matcher.batches, (part,)).pairs(ROOM):
                    _add_pairs(found, lefts, rights, numbers, codes)
            else:
                _add_part(found, part, numbers, codes)
    return found


def _add_part(found: Partners, part: Part, numbers: Sequence[Numbers], codes: Sequence[Words]) -> None:
    lefts, rights = part.rows
    found.counts[lefts] += part.listed.row_counts()
    for sums, column in zip(found.sums, numbers, strict=True):
        sums[lefts] += part.listed.row_sums(column[rights])
    for smallest, column in zip(found.smallest, codes, strict=True):
        smallest[lefts] = np.minimum(smallest[lefts], part.listed.row_smallest(column[rights]))


def _add_pairs(found: Partners, lefts: Rows, rights: Rows, numbers: Sequence[Numbers], codes: Sequence[Words]) -> None:
    """Pairs of one left row mostly come one after the other: a run of them is added up first."""
    starts = np.flatnonzero(np.diff(lefts, prepend=-1))
    rows = lefts[starts]
    np.add.at(found.counts, rows, np.diff(starts, append=len(lefts)))
    for sums, column in zip(found.sums, numbers, strict=True):
        np.add.at(sums, rows, np.add.reduceat(column[rights], starts))
    for smallest, column in zip(found.smallest, codes, strict=True):
        np.minimum.at(smallest, rows, np.minimum.reduceat(column[rights], starts))
