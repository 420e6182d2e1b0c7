"""Band joins in two attributes: two windows per left row, whose common right rows are its partners.

    join = band2d.prepare(band.prepare_floats(lx, rx, -e, e), band.prepare_floats(ly, ry, -e, e))

Each attribute is sorted and merged by itself (`band.py`), with all its types, edges and spellings; what is left is to
find the right rows whose places in both orders are in the left row's windows, which are whole numbers. Strips are cut
along x and swept along y (`cells.py`); a right row in a strip that the window covers needs no look at x.

The count looks at the places, many at a time, and writes nothing; it tells the listing which runs are copied as they
are and which are picked over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.cells import Visits, visit
from dovetail.kernels.compiling import kernel
from dovetail.kernels.listing import CHUNK, STRIDE, Flags, Rows, Words, new_chunk, padded
from dovetail.kernels.windows import Windows

ZERO, ONE = np.uint64(0), np.uint64(1)


class Band2d(NamedTuple):
    """A point that a box visits is its partner if its place in the x order is one of starts .. ends of the box."""

    visits: Visits
    places: Rows  # by point
    starts: Rows  # by box
    ends: Rows
    right_rows: int
    counts: Rows  # how many partners each visit finds; -1 as long as nobody has counted


def prepare(x: Windows, y: Windows) -> Band2d:
    """Partners are the pairs that two bands have in common."""
    visits, along, strips = visit(y, x)
    counts = np.full_like(visits.boxes, -1)
    return Band2d(visits, strips.places[along], strips.starts, strips.ends, len(x.right), counts)


def _counted(join: Band2d) -> Rows:
    if len(join.counts) and join.counts[0] < 0:
        _count(join)
    return join.counts


def count(join: Band2d) -> int:
    """How many pairs there are."""
    return int(_counted(join).sum(dtype=np.int64))


def row_counts(join: Band2d) -> Words:
    """How many partners each left row has."""
    counts = np.empty(len(join.visits.left), np.int64)
    counts[join.visits.left] = np.bincount(join.visits.boxes, _counted(join), len(counts))
    return counts


def row_exists(join: Band2d) -> Flags:
    """Which left rows have a partner. Looks no further than the first."""
    exists = np.empty(len(join.visits.left), np.bool_)
    exists[join.visits.left] = _boxes_exist(join)
    return exists


def right_exists(join: Band2d) -> Flags:
    """Which right rows have a partner."""
    _counted(join)
    exists = np.zeros(join.right_rows, np.bool_)
    exists[join.visits.points] = _points_exist(join)
    return exists


def pairs(join: Band2d, room: int = CHUNK) -> Iterator[tuple[Rows, Rows]]:
    """All pairs (left row, right row), in chunks of `room`; only the last is smaller."""
    missing = count(join)
    points = padded(join.visits.points)
    at = np.zeros(2, np.uint64)  # visit, and how many of its points have been looked at
    while missing > 0:
        size = min(room, missing)
        lefts, rights = new_chunk(size, points.dtype)
        _fill(join, points, at, np.uint64(size), lefts, rights)
        yield lefts[:size], rights[:size]
        missing -= size


@kernel
def _count(join: Band2d) -> None:
    visits = join.visits
    cell = 0
    for v in range(len(visits.boxes)):
        first, last = visits.firsts[v], visits.lasts[v]
        start, end = join.starts[visits.boxes[v]], join.ends[visits.boxes[v]]
        while visits.cells[cell + 1] <= first:
            cell += 1
        # A strip's points are numbered like its places: both begin where the strip does.
        if start <= visits.cells[cell] and visits.cells[cell + 1] <= end:
            join.counts[v] = last - first
        else:
            found = 0
            for p in range(first, last):
                found += (start <= join.places[p]) & (join.places[p] < end)
            join.counts[v] = found


@kernel
def _boxes_exist(join: Band2d) -> Flags:
    visits = join.visits
    exists = np.zeros(len(visits.left), np.bool_)
    for v in range(len(visits.boxes)):
        box = visits.boxes[v]
        p = visits.firsts[v]
        while not exists[box] and p < visits.lasts[v]:
            exists[box] = (join.starts[box] <= join.places[p]) & (join.places[p] < join.ends[box])
            p += 1
    return exists


@kernel
def _points_exist(join: Band2d) -> Flags:
    visits = join.visits
    exists = np.zeros(len(visits.points), np.bool_)
    open_runs = np.zeros(len(visits.points) + 1, np.int64)
    for v in range(len(visits.boxes)):
        first, last = visits.firsts[v], visits.lasts[v]
        if join.counts[v] == last - first:
            open_runs[first] += 1
            open_runs[last] -= 1
        elif join.counts[v] > 0:
            start, end = join.starts[visits.boxes[v]], join.ends[visits.boxes[v]]
            for p in range(first, last):
                exists[p] |= (start <= join.places[p]) & (join.places[p] < end)
    runs = 0
    for p in range(len(exists)):
        runs += open_runs[p]
        exists[p] |= runs > 0
    return exists


@kernel
def _fill(join: Band2d, points: Rows, at: NDArray[np.uint64], room: np.uint64, lefts: Rows, rights: Rows) -> None:
    """List the next `room` pairs; there must be so many."""
    visits = join.visits
    v, done = at[0], at[1]
    out = ZERO
    while out < room:
        box = visits.boxes[v]
        row = visits.left[box]
        start, end = join.starts[box], join.ends[box]
        first, last = np.uint64(visits.firsts[v]), np.uint64(visits.lasts[v])
        size = np.uint64(join.counts[v])
        if done > ZERO or size > room - out:  # a visit that does not fit in one chunk
            p = first + done
            while p < last and out < room:
                lefts[out] = row
                rights[out] = points[p]
                out += np.uint64((start <= join.places[p]) & (join.places[p] < end))
                p += ONE
            done = p - first
            if p < last:
                break
        elif size == last - first:
            for j in range(ZERO, size, STRIDE):
                for k in range(STRIDE):
                    lefts[out + j + k] = row
                for k in range(STRIDE):
                    rights[out + j + k] = points[first + j + k]
            out += size
        elif size > ZERO:
            for j in range(ZERO, size, STRIDE):
                for k in range(STRIDE):
                    lefts[out + j + k] = row
            for p in range(first, last):
                rights[out] = points[p]
                out += np.uint64((start <= join.places[p]) & (join.places[p] < end))
        done = ZERO
        v += ONE
    at[0] = v
    at[1] = done
