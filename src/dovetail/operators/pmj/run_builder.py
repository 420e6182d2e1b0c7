"""Rows in memory become a sorted run on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.core.rows import Rows, Side, take_rows
from dovetail.kernels.sorting import sort_codes
from dovetail.operators.pmj.runs import NO_WORDS, Items, Pages, RunWriter, SweepRun, Words
from dovetail.operators.pmj.sweep_order import SweepOrder

INTERVAL_BYTES = 16  # of each row in a run


class WrittenRuns(NamedTuple):
    run: SweepRun
    codes: Words  # of its rows, as they arrived
    dead: Words  # rows that match nothing, and are not in it


def write_run(
    order: SweepOrder,
    pages: Pages,
    side: Side,
    batch: pa.RecordBatch,
    numbers: Words,
    page: int,
    needed: Callable[[Side, Words], Rows | None],
) -> WrittenRuns:
    """Sort the rows and write them in pages of a size; only one page of them is copied at a time."""
    lines = order.lines(side, batch)
    places = sort_codes(lines.starts).order
    rows = places if lines.rows is None else lines.rows[places]
    kept = needed(side, numbers[rows]) if len(numbers) else None
    if kept is not None:
        rows, places = rows[kept], places[kept]
    writer = RunWriter(pages, side, page)
    width = -(-int(batch.nbytes) // max(1, batch.num_rows)) + INTERVAL_BYTES + (8 if len(numbers) else 0)
    step = max(1, page // pages.measure(1, width))
    for start in range(0, len(rows), step):
        chosen, here = rows[start : start + step], places[start : start + step]
        mine = numbers.take(chosen) if len(numbers) else NO_WORDS
        writer.add_page(Items(take_rows(batch, chosen), lines.starts.take(here), lines.ends.take(here), mine))
    dead = np.ones(batch.num_rows, np.bool_)
    dead[slice(None) if lines.rows is None else lines.rows] = False
    return WrittenRuns(writer.finish(), lines.codes, np.flatnonzero(dead))
