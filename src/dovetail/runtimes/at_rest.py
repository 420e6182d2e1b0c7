"""Joins of two complete sides, of every join type.

inner                  the pairs
left, right, full      the pairs, then the rows of that side (or both) that none of them contains
left_semi, left_anti   left rows with and without a partner; no pair is enumerated where no check needs it
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dovetail.batch import Pairs, Side
from dovetail.condition import Condition
from dovetail.matchers import build_matcher
from dovetail.metrics import Observer
from dovetail.runtimes.output import ONE_SIDED, WITHOUT_PARTNER, result_batches, row_batches
from dovetail.runtimes.watching import Watch

ROOM = 1 << 20  # pairs found at a time


def count_at_rest(condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch) -> int:
    """How many pairs there are."""
    return build_matcher(condition, left, right).count()


def join_at_rest(
    condition: Condition,
    how: str,
    left: pa.RecordBatch,
    right: pa.RecordBatch,
    schema: pa.Schema,
    observer: Observer | None = None,
) -> Iterator[pa.RecordBatch]:
    """The results, in batches of bounded size."""
    watch = Watch(observer)
    matcher = build_matcher(condition, left, right)
    if how in ONE_SIDED:
        partnered = matcher.partnered(Side.LEFT)
        rows = np.flatnonzero(partnered if how == "left_semi" else ~partnered)
        yield from watch.counted(row_batches(Side.LEFT, left, rows, schema), total=len(rows))
        return
    seen = {side: np.zeros(batch.num_rows, np.bool_) for side, batch in zip(Side, (left, right), strict=True)}
    alone = WITHOUT_PARTNER.get(how, ())
    watch.prepared(matcher, pairs_only=not alone)
    for left_rows, right_rows in matcher.pairs(ROOM):
        for side in alone:
            seen[side][left_rows if side is Side.LEFT else right_rows] = True
        yield from watch.counted(result_batches(Pairs(left, left_rows, right, right_rows), schema))
    for side in alone:
        rows = np.flatnonzero(~seen[side])
        yield from watch.counted(row_batches(side, left if side is Side.LEFT else right, rows, schema))
