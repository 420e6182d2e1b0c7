"""What is done when a query starts: its state must belong to its joins, and joins with work left get a micro-batch.

Tasks check the layout of the state as well (cell_state.py), but only when there is work, and their errors are wrapped
in Java's. The id of a query, and so the place of its state, is known once it has started:

    join_streams  --the layout, and a mark in the plan--> writeStream.start()  --query's id--> state_dir/<id>: the same?

A restarted query runs no micro-batch until new rows arrive if its last one was complete: Spark then does not know that
timers are set. A join of streams that have ended would wait forever, so the next micro-batch is planned here: its
offsets, those of the last one, are added to the checkpoint while the query is stopped, and Spark goes on with it.

In a Connect session, or if this process cannot access the state, only the tasks check it, and nothing is planned.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dovetail.errors import DovetailError, StateError
from dovetail.spark.exchange.packing import Rewrite
from dovetail.spark.streaming.state_dir import compare_layouts
from dovetail.spark.streaming.stream_join import CellJoin
from dovetail.storage.stored_state import LAYOUT

MARK = "unpack_{}"
MARKS = re.compile(MARK.format(r"([0-9a-f]{16})\("))

_joins: dict[str, CellJoin] = {}
"""The joins of this process, by their mark."""


def marked(rewrite: Rewrite, join: CellJoin) -> Rewrite:
    """The function for mapInArrow under a name that identifies the join. Spark shows it in plans."""
    known = [str(join.setting.state_dir), join.setting.metrics, join.layout]
    mark = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]
    _joins[mark] = join
    rewrite.__name__ = MARK.format(mark)
    _watch_starts()
    return rewrite


def joins_of(frame: DataFrame) -> list[CellJoin]:
    """The joins in the plan of a query."""
    marks = MARKS.findall(frame._jdf.queryExecution().analyzed().toString())
    return [_joins[mark] for mark in marks if mark in _joins]


def check_state(joins: Sequence[CellJoin], query: str) -> None:
    """Refuse state of that query that was written by other joins."""
    for join in joins:
        place = join.setting.place(query)
        try:
            text = place.get(LAYOUT)
        except (OSError, DovetailError):  # tasks may have access to it
            continue
        if text is not None:
            compare_layouts(place, text, join.layout)


def is_idle(query: StreamingQuery) -> bool:
    """Whether all micro-batches in the checkpoint are complete, so that Spark waits for rows."""
    offsets, commits = _latest_batches(query)
    return offsets is not None and offsets == commits


def plan_batch(query: StreamingQuery) -> None:
    """Add a micro-batch without rows to the checkpoint of a stopped query."""
    offsets, commits = _latest_batches(query)
    if offsets is not None and offsets == commits:
        log = query._jsq.streamingQuery().offsetLog()
        log.add(offsets + 1, log.get(offsets).get())


def _latest_batches(query: StreamingQuery) -> tuple[int | None, int | None]:
    stream = query._jsq.streamingQuery()
    offsets, commits = (log.getLatestBatchId() for log in (stream.offsetLog(), stream.commitLog()))
    return offsets.get() if offsets.isDefined() else None, commits.get() if commits.isDefined() else None


def _watch_starts() -> None:
    """For queries of classic sessions. There is no hook: Spark only logs what listeners raise."""
    for name in ("start", "toTable"):
        method = getattr(DataStreamWriter, name)
        if getattr(method, "__module__", None) != __name__:
            setattr(DataStreamWriter, name, _at_start(method))


def _at_start(method: Callable[..., StreamingQuery]) -> Callable[..., StreamingQuery]:
    @wraps(method, assigned=("__name__", "__qualname__", "__doc__"))
    def start(writer: Any, *arguments: Any, **options: Any) -> StreamingQuery:
        query = method(writer, *arguments, **options)
        joins = joins_of(writer._df)
        try:
            check_state(joins, str(query.id))
        except StateError:
            query.stop()
            raise
        if any(join.has_timers for join in joins) and is_idle(query):
            _stop_unnoticed(query, writer._spark.streams)
            plan_batch(query)
            query = method(writer, *arguments, **options)
        return query

    return start


def _stop_unnoticed(query: StreamingQuery, queries: StreamingQueryManager) -> None:
    """Stop a query, but `awaitAnyTermination` must not return because of it."""
    try:
        earlier = queries.awaitAnyTermination(0)
    except StreamingQueryException:
        earlier = True
    query.stop()
    if not earlier:
        queries.resetTerminated()
