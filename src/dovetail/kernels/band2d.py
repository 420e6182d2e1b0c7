"""Band joins in two attributes: two windows per left row, whose common right rows are its partners.

    join = band2d.prepare(band.prepare_floats(lx, rx, -e, e), band.prepare_floats(ly, ry, -e, e))

Each attribute is sorted and merged separately (`band.py`), with all its types, edges and spellings. The remaining task
is to find the right rows whose positions in both orders are in the left row's windows: these are integers, so it is
exact. One attribute is cut into strips, the other is swept (`cells.py`); in a strip that a window covers completely,
all rows swept are partners. `candidates.py` describes what can be done with the join.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from dovetail.kernels import windows
from dovetail.kernels.candidates import Bytes, Candidates, blocks
from dovetail.kernels.cells import visit
from dovetail.kernels.compiling import kernel
from dovetail.kernels.windows import Rows, Windows, Words


class _Strips(NamedTuple):
    """A visited point is a partner of the box if its position is one of starts .. ends."""

    cells: Words
    places: Rows  # by point
    starts: Rows  # by box
    ends: Rows


def prepare(x: Windows, y: Windows) -> Candidates:
    """The pairs that two bands have in common."""
    sweep, across = sorted((x, y), key=windows.count)  # sweep along the more selective one
    met = visit(sweep, across)
    strips = _Strips(met.cells, met.strips.places[met.places], met.strips.starts, met.strips.ends)
    visits = partial(blocks, met.visits)
    return Candidates(met.left, met.right, visits, partial(_flag, strips), len(x.left), len(x.right))


@kernel
def _flag(strips: _Strips, boxes: Rows, firsts: Rows, lasts: Rows, flags: Bytes, counts: Rows) -> None:
    q = np.uint64(0)
    cell = _cell_of(strips.cells, firsts[0])
    for v in range(len(boxes)):
        first = np.uint64(firsts[v])
        length = np.uint64(lasts[v]) - first
        start, end = strips.starts[boxes[v]], strips.ends[boxes[v]]
        while strips.cells[cell + 1] <= firsts[v]:
            cell += 1
        # A strip's points are numbered like its positions: both start with the strip.
        if start <= strips.cells[cell] and strips.cells[cell + 1] <= end:
            for k in range(length):
                flags[q + k] = 1
            counts[v] = length
        else:
            found = strips.places.dtype.type(0)
            for k in range(length):
                place = strips.places[first + k]
                inside = (start <= place) & (place < end)
                flags[q + k] = inside
                found += strips.places.dtype.type(inside)
            counts[v] = found
        q += length


@kernel
def _cell_of(cells: Words, point: int) -> int:
    low, high = 0, len(cells) - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if cells[middle] <= point:
            low = middle
        else:
            high = middle
    return low
