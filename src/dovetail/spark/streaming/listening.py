"""Reports the streaming queries of a session to listeners. Works in classic and in Connect sessions."""

from __future__ import annotations

from typing import Any, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener


class Audience(Protocol):
    """A receiver of reports on a session's queries. It is called from a thread of Spark."""

    def started(self, run: str) -> None: ...
    def progressed(self, progress: Any) -> None: ...
    def ended(self, run: str, error: str | None) -> None: ...


class Listener(StreamingQueryListener):
    """Forwards Spark's reports."""

    def __init__(self, audience: Audience) -> None:
        self._audience = audience

    def onQueryStarted(self, event: Any) -> None:
        self._audience.started(str(event.runId))

    def onQueryProgress(self, event: Any) -> None:
        self._audience.progressed(event.progress)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:
        self._audience.ended(str(event.runId), event.exception)


def add_listener(spark: SparkSession, audience: Audience) -> Listener:
    listener = Listener(audience)
    spark.streams.addListener(listener)
    return listener


def active_runs(spark: SparkSession) -> set[str]:
    """The runs of queries that have not ended."""
    return {str(query.runId) for query in spark.streams.active}


def remove_listener(spark: SparkSession, listener: Listener) -> None:
    spark.streams.removeListener(listener)
