"""A limit: any so many rows of a result. Nothing is computed beyond them, since results are generated lazily."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dovetail.errors import InputError
from dovetail.execution.steps import Step
from dovetail.execution.tasks import Joining

FEWEST_PAIRS = 1 << 14  # found at a time, however few rows are wanted: many of them may fail their checks


def check_limit(limit: Any) -> int | None:
    """The number of rows, or None for all."""
    if limit is None or (type(limit) is int and limit >= 0):
        return limit
    raise InputError(f"limit is a number of rows, 0 or more; got {limit!r}. Leave it out for all rows.")


def limit_rows(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows; then the batches are closed."""
    with _closing(batches):
        if limit is None:
            yield from batches
            return
        missing = limit
        for batch in batches if missing else ():
            yield batch.slice(0, missing)
            missing -= min(missing, batch.num_rows)
            if not missing:
                return


def limit_steps(steps: Iterable[Step], limit: int | None) -> Generator[Step, None, None]:
    """Steps with the first `limit` rows; then the join is closed."""
    with _closing(steps):
        results = 0
        for step in steps if limit != 0 else ():
            if limit is None or results + step.batch.num_rows < limit:
                results += step.batch.num_rows
                yield step
            else:
                yield replace(step, batch=step.batch.slice(0, limit - results), results=limit)
                return


def limit_work(work: Joining, limit: int | None) -> Joining:
    """Work that looks for few pairs at a time and gathers no more rows than are wanted."""
    if limit is None:
        return work
    rows = limit if 0 < limit < FEWEST_PAIRS else work.rows
    return replace(work, room=min(work.room, max(FEWEST_PAIRS, limit)), rows=rows)


@contextmanager
def _closing(rows: object) -> Iterator[None]:
    """Closes a generator on leaving, whether or not it has ended."""
    try:
        yield
    finally:
        close = getattr(rows, "close", None)
        if close is not None:
            close()
