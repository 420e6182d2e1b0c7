"""Pairs whose rows come from different sources."""

from __future__ import annotations

from dovetail.kernels.compiling import kernel
from dovetail.kernels.listing import Rows, Words


def apart(lefts: Rows, rights: Rows, left_sources: Words, right_sources: Words) -> tuple[Rows, Rows]:
    """Those of the pairs (lefts[i], rights[i]); the arrays are used for the answer."""
    count = _keep(lefts, rights, left_sources, right_sources)
    return lefts[:count], rights[:count]


@kernel
def _keep(lefts: Rows, rights: Rows, left_sources: Words, right_sources: Words) -> int:
    """Every pair is written; one that is not wanted is overwritten by the next: no branch that nobody could predict."""
    count = 0
    for k in range(len(lefts)):
        left, right = lefts[k], rights[k]
        lefts[count], rights[count] = left, right
        count += left_sources[left] != right_sources[right]
    return count
