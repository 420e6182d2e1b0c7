"""Queries over remote sources whose micro-batches are recorded, to compare them when they run again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from tests.patience import wait_until

Batches = dict[int, pa.Table]


def started(stream: DataFrame, checkpoint: Path, into: Batches, **trigger: Any) -> StreamingQuery:
    """Start a query that records the rows of each micro-batch under its number."""

    def keep(batch: DataFrame, number: int) -> None:
        into[number] = batch.toArrow()

    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def rows_of(batches: Batches) -> int:
    return sum(table.num_rows for table in list(batches.values()))


def wait_for(done: Callable[[], bool], query: StreamingQuery) -> None:
    def is_done() -> bool:
        assert query.isActive, query.exception()
        return done()

    wait_until(is_done)


def forget_the_last_commit(checkpoint: Path) -> int:
    """Simulate that Spark died just before the commit: the micro-batch is planned, and has to run again."""
    number = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for path in (checkpoint / "commits").glob(f"*{number}*"):
        path.unlink()
    return number
