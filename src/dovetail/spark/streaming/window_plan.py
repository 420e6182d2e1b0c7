"""What the workers of a windowed join need to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dovetail.condition.aggregates import Aggregate
from dovetail.core.rows import Side
from dovetail.planning.plan import JoinPlan
from dovetail.routing.protocol import Router
from dovetail.spark.exchange.partitions import spread_labels
from dovetail.window import Window

FORMAT = 2  # of the state: to be raised when a release writes another
FIGURES = ("matches", "window_rows", "late_rows", "merges", "probe_us", "merge_us", "cell_us")
RESULTS = "payload binary, " + ", ".join(f"{name} bigint" for name in FIGURES)


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """All that the workers need to know; travels with the query."""

    plan: JoinPlan
    window: Window
    cells: int  # that take turns keeping rows
    partitions: int  # of Spark's state store
    state_dir: str
    drop: tuple[int, int]  # key columns at the end of each side that are not part of the result
    schema: pa.Schema  # of the result
    metrics: str  # the name of our figures in the query's progress, and of the join in the state directory
    self_join: bool = False  # the left stream is the right one, too
    router: Router | None = None  # sends rows that can match to one cell; None: every row visits all cells
    aggregates: tuple[Aggregate, ...] = ()  # of left rows over right ones, instead of pairs

    @property
    def in_turns(self) -> bool:
        """Whether cells take turns keeping rows of both sides; else left rows are in one cell, right rows in all."""
        return self.router is None and self.plan.how == "inner" and not self.aggregates

    @property
    def has_timers(self) -> bool:
        """Whether windows have to close while nothing arrives."""
        return self.window.idle is not None and bool(self.plan.how.preserved) and not self.aggregates

    @property
    def labels(self) -> list[int]:
        """One per cell; of an inner join also those that it does not use now, and may have used or use later."""
        reached = max(self.cells, self.partitions) if self.in_turns else self.cells
        return spread_labels(reached, self.partitions)

    @property
    def layout(self) -> dict[str, Any]:
        """All that must stay the same for the state to mean the same. Ready for JSON."""
        condition, window = self.plan.condition, self.window
        layout = {
            "format": FORMAT,
            "condition": condition.text,
            "self_join": self.self_join,
            "how": self.plan.how if not self.aggregates else "aggregate",
            "window": [window.size, list(window.on or ()), window.scope],
            "partitions": self.partitions,
            "by": "turns" if self.router is None else "value",
            "columns": [[[field.name, str(field.type)] for field in condition.schema(side)] for side in Side],
        }
        return layout | {"cells": len(self.labels)}
