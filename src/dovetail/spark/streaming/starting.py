"""Refuses to restart a query with a join that differs from that of its state, even if no rows arrive.

Tasks check the layout of the state as well (cell_state.py), but only when there is work, and their errors are wrapped
in Java's. The id of a query, and so the place of its state, is known once it has started:

    join_streams  --the layout, and a mark in the plan--> writeStream.start()  --query's id--> state_dir/<id>: the same?

In a Connect session, or if this process cannot access the state, only the tasks check it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
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


def check_state(frame: DataFrame, query: str) -> None:
    """Refuse state of that query that was written by other joins than those of the frame."""
    for mark in MARKS.findall(frame._jdf.queryExecution().analyzed().toString()):
        if mark in _joins:
            setting, layout = _joins[mark].setting, _joins[mark].layout
            place = setting.place(query)
            try:
                text = place.get(LAYOUT)
            except (OSError, DovetailError):  # tasks may have access to it
                continue
            if text is not None:
                compare_layouts(place, text, layout)


def _watch_starts() -> None:
    """Check queries of classic sessions at their start. There is no hook: Spark only logs what listeners raise."""
    for name in ("start", "toTable"):
        method = getattr(DataStreamWriter, name)
        if getattr(method, "__module__", None) != __name__:
            setattr(DataStreamWriter, name, _checked(method))


def _checked(method: Callable[..., StreamingQuery]) -> Callable[..., StreamingQuery]:
    @wraps(method, assigned=("__name__", "__qualname__", "__doc__"))
    def start(writer: Any, *arguments: Any, **options: Any) -> StreamingQuery:
        query = method(writer, *arguments, **options)
        try:
            check_state(writer._df, str(query.id))
        except StateError:
            query.stop()
            raise
        return query

    return start
