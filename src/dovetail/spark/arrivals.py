"""The order in which the rows of a micro-batch arrive, the same in every cell and in every attempt.

Every cell sees every row, so that each can number them by itself, without a task that all would have to wait for.
Sources (the partitions of both streams) take turns, one row each, in the order of their numbers:

    source 0    0   3   6   8
    source 1    1   4
    source 2    2   5   7

A row's number follows from its position in its source and from how many rows each source has. Spark's sources give a
micro-batch the same partitions and rows when it is run again, so that the numbers are the same then, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.batch import Side, take_rows
from dovetail.state.places import Places

POSITION_BITS = 40  # of a packed row's seq: the position of its first row; the source partition is above

Words = NDArray[np.int64]


class Packet(NamedTuple):
    """Some rows of a source."""

    side: Side
    seq: int  # partition and position of the first row
    rows: pa.RecordBatch


class Ordered(NamedTuple):
    """The rows of one side, in the order of arrival."""

    batch: pa.RecordBatch | None  # None: no rows
    numbers: Words  # among all rows of the micro-batch


def in_order(packets: Iterable[Packet]) -> tuple[Ordered, Ordered]:
    """The rows of both sides of one micro-batch."""
    sources: dict[tuple[int, Side], list[Packet]] = {}
    for packet in sorted(packets, key=lambda p: p.seq):
        sources.setdefault((packet.seq >> POSITION_BITS, packet.side), []).append(packet)
    keys = sorted(sources)
    counts = [sum(p.rows.num_rows for p in sources[key]) for key in keys]
    found: list[Ordered] = []
    for side in Side:
        mine = [i for i, (_, of) in enumerate(keys) if of is side]
        if not mine:
            found.append(Ordered(None, np.empty(0, np.int64)))
            continue
        numbers = np.concatenate([turns(counts, i) for i in mine])
        batch = pa.concat_batches([p.rows for i in mine for p in sources[keys[i]]])
        order = np.argsort(numbers)
        found.append(Ordered(take_rows(batch, order), numbers[order]))
    return found[0], found[1]


def turns(counts: list[int], source: int) -> Words:
    """The numbers of a source's rows, all sources taking turns."""
    positions = np.arange(counts[source])
    numbers = np.zeros(counts[source], np.int64)
    for other, count in enumerate(counts):
        numbers += np.minimum(count, positions)
        if other < source:
            numbers += count > positions
    return numbers


def placed(side: Side, numbers: Words, arrived: tuple[int, int], self_join: bool = False) -> Places:
    """Places of the rows of a side, after `arrived` rows of both sides; in a self-join both sides are the same rows."""
    if self_join:
        own = arrived[side] + numbers
        return Places(own, own, own)
    own = arrived[side] + np.arange(len(numbers))
    at = sum(arrived) + numbers
    return Places(at, own, at - own)
