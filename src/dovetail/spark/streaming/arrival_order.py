"""The order in which the rows of a micro-batch arrive, the same in every cell and in every attempt.

Every cell is notified of every row, so each cell can number them without waiting for a central task. Sources (the
partitions of both streams) take turns, one row each, in the order of their numbers:

    source 0    0   3   6   8
    source 1    1   4
    source 2    2   5   7

A row's number follows from its position in its source and from the number of rows of each source. When Spark repeats a
micro-batch, its sources return the same partitions and rows, so the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import concatenate
from dovetail.columns.taking import take_rows
from dovetail.core.rows import Side
from dovetail.matching.window_positions import WindowPositions
from dovetail.spark.exchange.packing import from_bytes, to_bytes

POSITION_BITS = 40  # low bits of a packed row's seq: position of its first row; above: source partition

NEVER = -(2**62)  # event time if there are no rows

WITHIN, TELLS = "__within", "__tells"  # columns of packets: positions in the piece, and the rows that this cell counts
SIZE, NEWEST = b"size", b"newest"  # of the whole piece

Words = NDArray[np.int64]


class Packet(NamedTuple):
    """A piece of a source: its rows for this cell, and its total number of rows."""

    side: Side
    seq: int  # partition, and position of the piece
    rows: pa.RecordBatch
    within: Words  # positions of the rows in the piece
    tells: NDArray[np.bool_]  # the rows counted here: a row visits many cells, and one of them counts it
    size: int
    newest: int  # event time of the whole piece, if the window is over time


class Ordered(NamedTuple):
    """The rows of one side for this cell, in the order of arrival."""

    batch: pa.RecordBatch | None  # None: nothing is known of the side, not even its columns
    numbers: Words  # of the rows, among all rows of the micro-batch
    own: Words  # and among all rows of their side
    tells: NDArray[np.bool_]  # the rows that this cell counts
    size: int  # of all rows of the side
    newest: int  # event time of all of them


def in_order(packets: Iterable[Packet]) -> tuple[Ordered, Ordered]:
    """The rows of both sides of one micro-batch."""
    sources: dict[tuple[int, Side], list[Packet]] = {}
    for packet in sorted(packets, key=lambda p: p.seq):
        sources.setdefault((packet.seq >> POSITION_BITS, packet.side), []).append(packet)
    keys = sorted(sources)
    counts = [sum(p.size for p in sources[key]) for key in keys]
    left, right = (_side(side, keys, counts, sources) for side in Side)
    return left, right


def _side(
    side: Side,
    keys: list[tuple[int, Side]],
    counts: list[int],
    sources: dict[tuple[int, Side], list[Packet]],
) -> Ordered:
    mine = [i for i, (_, of) in enumerate(keys) if of is side]
    nothing = np.empty(0, np.int64)
    if not mine:
        return Ordered(None, nothing, nothing, np.empty(0, np.bool_), 0, NEVER)
    everyone = [turns(counts, i) for i in mine]
    here = [numbers[_positions(sources[keys[i]])] for i, numbers in zip(mine, everyone, strict=True)]
    numbers = np.concatenate(here)
    batch = concatenate([p.rows for i in mine for p in sources[keys[i]]])
    order = np.argsort(numbers)
    own = np.searchsorted(np.sort(np.concatenate(everyone)), numbers[order])
    tells = np.concatenate([p.tells for i in mine for p in sources[keys[i]]])[order]
    newest = max(p.newest for i in mine for p in sources[keys[i]])
    return Ordered(take_rows(batch, order), numbers[order], own, tells, sum(counts[i] for i in mine), newest)


def _positions(packets: list[Packet]) -> Words:
    """The positions of the rows in their source."""
    starts = np.cumsum([0, *(p.size for p in packets[:-1])])
    return np.concatenate([p.within + start for p, start in zip(packets, starts, strict=True)])


def turns(counts: list[int], source: int) -> Words:
    """The numbers of a source's rows, with all sources taking turns."""
    positions = np.arange(counts[source])
    numbers = np.zeros(counts[source], np.int64)
    for other, count in enumerate(counts):
        numbers += np.minimum(count, positions)
        if other < source:
            numbers += count > positions
    return numbers


def placed(side: Side, rows: Ordered, arrived: tuple[int, int], self_join: bool = False) -> WindowPositions:
    """Positions of the rows of a side, after `arrived` rows of both sides. In a self-join both have the same rows."""
    own = arrived[side] + rows.own
    if self_join:
        return WindowPositions(own, own, own)
    at = sum(arrived) + rows.numbers
    return WindowPositions(at, own, at - own)


def packet(rows: pa.RecordBatch, within: Words, tells: NDArray[np.bool_], size: int, newest: int) -> pa.Buffer:
    """Rows of a piece with their positions in it, and the facts about the whole piece, as bytes."""
    numbered = rows.append_column(WITHIN, pa.array(within, pa.int64())).append_column(TELLS, pa.array(tells))
    return to_bytes(numbered.replace_schema_metadata({SIZE: str(size), NEWEST: str(newest)}))


def packets(frames: Iterator[pd.DataFrame]) -> Iterator[Packet]:
    """Unpack what arrived at a cell."""
    for frame in frames:
        for side, seq, payload in zip(frame["side"], frame["seq"], frame["payload"], strict=True):
            batch = from_bytes(payload)
            columns = batch.num_columns - 2
            rows = batch.select(range(columns)).replace_schema_metadata(None)
            within, tells = (np.asarray(column) for column in batch.columns[columns:])
            whole = batch.schema.metadata
            yield Packet(Side(side), int(seq), rows, within, tells, int(whole[SIZE]), int(whole[NEWEST]))
