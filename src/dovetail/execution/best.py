"""Joins each left row with its best partners, in the order of the left rows.

    right rows, all ----------------------\\
    left rows, a piece within the budget ---> partners by row number --> left rows with partners, or with nulls
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from dovetail.columns.batches import one_batch
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Observer
from dovetail.core.rows import Matches
from dovetail.core.threads import allow_threads
from dovetail.errors import BudgetError
from dovetail.execution.at_rest import Watch
from dovetail.execution.out_of_core import AT_REST, MOST_BYTES, InputAtRest, load
from dovetail.execution.output import output_schema, padded_batches, result_batches
from dovetail.execution.steps import limit_rows
from dovetail.matching.best_partners import best_partners
from dovetail.matching.matcher import FEW_ROWS
from dovetail.planning.plan import JoinPlan
from dovetail.sources.protocol import Scan


def join_best(
    plan: JoinPlan,
    left: Scan,
    right: Scan,
    suffix: str,
    observer: Observer | None,
    limit: int | None,
    threads: int,
    batch_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """The join of two inputs at rest, batch by batch. The right side is kept, the left side is read in pieces."""
    schema = output_schema(left.schema, right.schema, suffix, plan.how)
    resident = load(right, None)
    piece_bytes = _piece_size(plan.memory_bytes, resident.nbytes)
    passing = load(left, None if plan.memory_bytes is None else piece_bytes)
    threads = threads if passing.scan.rows + resident.scan.rows >= FEW_ROWS else 1
    enough = limit if plan.how is JoinType.LEFT else None  # each of these left rows has a result
    batches = _pieces(plan, passing, resident, schema, threads, batch_bytes, piece_bytes, enough)
    yield from limit_rows(Watch(observer).count_batches(batches), limit)


def _piece_size(memory_bytes: int | None, right_bytes: int) -> int:
    """Bytes of the left side that are joined at a time."""
    if memory_bytes is None:
        return MOST_BYTES
    if AT_REST * right_bytes >= memory_bytes:
        raise BudgetError(
            f"memory={memory_bytes:,} bytes is too small: the right side of a join with the best partners is kept, and "
            f"takes about {AT_REST * right_bytes:,} bytes with its indexes. Give more memory, or select fewer columns."
        )
    return max(1, min(MOST_BYTES, (memory_bytes - AT_REST * right_bytes) // AT_REST))


def _pieces(
    plan: JoinPlan,
    left: InputAtRest,
    right: InputAtRest,
    schema: pa.Schema,
    threads: int,
    batch_bytes: int,
    piece_bytes: int,
    enough: int | None,
) -> Iterator[pa.RecordBatch]:
    assert plan.best is not None
    table = right.scan.to_table()
    theirs = one_batch(table, table.schema)
    whole = left.nbytes <= piece_bytes
    table = left.scan.to_table().slice(0, enough) if whole else None
    share = table is not None and len(table.to_batches()) == 1  # otherwise the piece is a copy
    for mine in [one_batch(table, table.schema)] if table is not None else left.batches(piece_bytes):
        with allow_threads(threads):
            found = best_partners(plan.condition, plan.best, mine, theirs)
        if plan.how is JoinType.INNER:
            lefts, rights = found.found
            pairs = Matches.pairs(mine, lefts, theirs, rights)
            yield from result_batches(pairs, schema, most_bytes=batch_bytes, share=share)
        else:
            yield from padded_batches(mine, found.lefts, theirs, found.rights, schema, batch_bytes, share)
