"""Joins of two complete sides in memory, of every join type.

inner                  the pairs
left, right, full      the pairs, then the rows of that side (or both) that none of them contains
left_semi, left_anti   left rows with and without a partner; no pair is enumerated where no check needs it
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dovetail.batch import Side
from dovetail.condition import Condition
from dovetail.matchers import build_matcher
from dovetail.metrics import Observer
from dovetail.runtimes.output import ONE_SIDED, WITHOUT_PARTNER
from dovetail.runtimes.watching import Watch
from dovetail.runtimes.work import Joining

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
    batches = (left, right)
    partnered = (np.zeros(left.num_rows, np.bool_), np.zeros(right.num_rows, np.bool_))
    work = Joining(condition, how, schema, room=ROOM)
    matcher = build_matcher(condition, left, right)
    if how not in ONE_SIDED:
        watch.prepared(matcher, pairs_only=how not in WITHOUT_PARTNER)
    yield from watch.counted(work.listed(matcher, batches, partnered))
    for side in Side:
        total = len(work.rows_alone(side, partnered[side])) if how in ONE_SIDED else None
        yield from watch.counted(work.leave(side, batches[side], partnered[side]), total)
