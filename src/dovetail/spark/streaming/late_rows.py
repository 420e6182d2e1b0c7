"""Logs warnings about late rows, which windowed joins drop.

The workers count them, Spark adds the counts up, and a listener in the driver reads the sum from the progress of each
micro-batch.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession

from dovetail.spark.streaming.listening import add_listener
from dovetail.visible import visible

log = logging.getLogger("dovetail.spark")

LISTENING = "spark.dovetail.warnsOfLateRows"  # stored in the session, which may have several Python objects


def warn_of_late_rows(spark: SparkSession) -> None:
    """Make windowed joins of a session log a warning for each micro-batch that drops rows."""
    if spark.conf.get(LISTENING, None) is None:
        add_listener(spark, LateRows())
        spark.conf.set(LISTENING, "true")


class LateRows:
    """Reads the progress of all queries of a session."""

    def started(self, run: str) -> None:
        """Nothing to report yet."""

    def progressed(self, progress: Any) -> None:
        for name, row in (progress["observedMetrics"] or {}).items():
            figures = row.asDict()
            if {"results", "resident_rows"} <= figures.keys() and figures.get("late_rows"):
                log.warning(
                    "query %s, join %s, micro-batch %s: %s late rows were dropped. Allow for more lateness by "
                    "withWatermark on the inputs or by delay= of the window; dovetail.explain says how much it is now.",
                    visible(progress["name"] or progress["id"], one_line=True),
                    visible(name, one_line=True),
                    progress["batchId"],
                    f"{figures['late_rows']:,}",
                )

    def ended(self, run: str, error: str | None) -> None:
        """Nothing more to report."""
