"""A query that is started again with another join than its state is of: refused when it starts, rows or not.

Tasks check the layout of the state, too (cell_state.py), but only when there is something to do, and what they raise
comes wrapped in Java's errors. The id of a query, and with it the place of its state, is known when it has started:

    join_streams  --the layout, and a mark in the plan--> writeStream.start()  --query's id--> state_dir/<id>: the same?

In a Connect session, and where this process does not reach the state, it is left to the tasks.
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
    """The function for mapInArrow under a name that tells the join, which Spark shows in plans."""
    known = [str(join.setting.state_dir), join.setting.metrics, join.layout]
    mark = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]
    _joins[mark] = join
    rewrite.__name__ = MARK.format(mark)
    _watch_starts()
    return rewrite


def check_state(frame: DataFrame, query: str) -> None:
    """Refuse state of that query which other joins than those of the frame have made."""
    for mark in MARKS.findall(frame._jdf.queryExecution().analyzed().toString()):
        if mark in _joins:
            setting, layout = _joins[mark].setting, _joins[mark].layout
            place = setting.place(query)
            try:
                text = place.get(LAYOUT)
            except (OSError, DovetailError):  # tasks may reach it
                continue
            if text is not None:
                compare_layouts(place, text, layout)


def _watch_starts() -> None:
    """Let queries of classic sessions be checked. There is no hook for it: what listeners raise, Spark logs."""
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
