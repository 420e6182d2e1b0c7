"""A streaming join in the terminal: a line for each micro-batch, until the query ends.

    batch    rows in    rows/s    results          estimate  kept rows    state  skew  late   probe  merge    took
       12    100,000    92,593  1,012,310  8,120,400 ±9,700  1,000,000  64.0 MB  1.02     0  420 ms  31 ms  1.08 s

The figures are those of the query's own progress; the function only reads them, and works on any query with a join of
ours, in this session or in a Connect session.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

from dovetail.core.metrics import HEARTBEAT_S, Estimate
from dovetail.estimation.estimate import CONFIDENCE
from dovetail.monitoring.summary import size

if TYPE_CHECKING:
    from dovetail.spark.early.stop_rule import Until

Cell = Callable[[Mapping[str, Any]], str]

POLL_S = 0.2


def follow(query: Any, metrics: str = "dovetail", file: TextIO | None = None) -> None:
    """Print a line for each micro-batch of a streaming query until it ends, as `query.awaitTermination()` would wait.

    Micro-batches without input or results are skipped. An error of the query is raised here. Ctrl-C stops
    following, not the query. `metrics` is the name of the join, if it was given one.
    """
    out = sys.stderr if file is None else file
    for line in lines(query, metrics):
        print(line, file=out, flush=True)


def finish(query: Any, metrics: str = "dovetail", file: TextIO | None = None, *, until: Any = None) -> None:
    """Wait until a join of bounded streams has emitted all its results, and stop the query.

    A query with timers does not end by itself. Sources that stall have not ended: cells that are not finished report it
    every second. With `file`, progress is printed there, as by `follow`. A join with a `limit` is complete when it is
    reached, before its inputs have ended.

    `until` stops the query earlier, as it does `dovetail.progressive`: after a number of results (10_000), when the
    estimate of the total is within a relative error (0.01), after a time ("30 seconds"), or at the first of a list of
    them. A query that is started again goes on from there.
    """
    from dovetail.spark.early.stop_rule import Until

    for line in lines(query, metrics, Completion(Until.read(until).start_clock())):
        if file is not None:
            print(line, file=file, flush=True)
    query.stop()


def lines(query: Any, metrics: str = "dovetail", completion: Completion | None = None) -> Iterator[str]:
    """What `follow` prints; with a completion, only until then."""
    yield "".join(name.rjust(width) for name, width, _ in COLUMNS)
    last, ended = -1, False
    while not ended:
        ended = query.awaitTermination(POLL_S)  # raises what the query has failed with
        ended = ended or (completion is not None and completion.is_late)
        for progress in query.recentProgress:
            if progress["batchId"] <= last:
                continue
            last = progress["batchId"]
            known = known_figures(progress, metrics)
            ended = ended or (completion is not None and completion.is_reached(progress, known))
            if figures := _figures(progress, known):
                yield "".join(cell(figures).rjust(width) for _, width, cell in COLUMNS)


class Completion:
    """Whether a join of bounded streams is complete, or has emitted enough."""

    def __init__(self, until: Until) -> None:
        self._until = until
        self._heard: datetime | None = None  # the last micro-batch in which there was something

    @property
    def is_late(self) -> bool:
        """Whether the time is over, micro-batch or not."""
        return self._until.is_over

    def is_reached(self, progress: Any, known: Mapping[str, Any]) -> bool:
        """Take note of a micro-batch, in the order of their numbers."""
        enough = self._until.is_enough(known.get("emitted", 0) + results_in(known), [estimate_of(known)])
        return enough or bool(known.get("limit_reached")) or self._is_silent(progress, known)

    def _is_silent(self, progress: Any, known: Mapping[str, Any]) -> bool:
        """The inputs are idle, and no cell reports that it waits."""
        at = datetime.fromisoformat(progress["timestamp"])
        cells = sum(operator["numRowsTotal"] for operator in progress["stateOperators"])
        if known or rows_in(progress) or not cells or self._heard is None:
            self._heard = at
            return False
        return at - self._heard > timedelta(seconds=HEARTBEAT_S)


def known_figures(progress: Any, metrics: str) -> dict[str, Any]:
    """What the cells have said of a micro-batch; nothing, if none of them did anything."""
    ours = (progress["observedMetrics"] or {}).get(metrics)
    figures = {} if ours is None else ours.asDict()
    if figures.keys() == {"values", "schema"}:  # a Connect session gives the parts of Spark's row
        names = [field["name"] for field in figures["schema"]["fields"]]
        figures = dict(zip(names, figures["values"], strict=True))
    return {name: value for name, value in figures.items() if value is not None}


def estimate_of(known: Mapping[str, Any]) -> Estimate | None:
    """Of the number of all results, where the cells have one."""
    if "estimate" not in known:
        return None
    return Estimate(known["estimate"], known["estimate_low"], known["estimate_high"], CONFIDENCE)


def results_in(known: Mapping[str, Any]) -> int:
    """How many results a micro-batch has, in a window or without."""
    return int(known.get("matches", known.get("results", 0)))


def rows_in(progress: Any) -> int:
    """How many rows came with a micro-batch; in a Connect session only the sources know."""
    rows = progress["numInputRows"]
    return sum(source["numInputRows"] for source in progress["sources"]) if rows is None else int(rows)


def _figures(progress: Any, known: dict[str, Any]) -> dict[str, Any]:
    """All that is known of a micro-batch by the name of its column; nothing, if nothing came and nothing was found."""
    results, rows = results_in(known), rows_in(progress)
    if not rows and not results:
        return {}
    took = progress["durationMs"].get("triggerExecution", 0) / 1000
    return known | {"batch": progress["batchId"], "rows": rows, "took": took, "found": results}


def _count(name: str) -> Cell:
    return lambda figures: f"{figures[name]:,}" if name in figures else "-"


def _time(name: str) -> Cell:
    return lambda figures: f"{figures[name] / 1000:,.0f} ms" if name in figures else "-"


def _kept_rows(figures: Mapping[str, Any]) -> int | None:
    """Rows of the window, or those in memory and on disk."""
    if "window_rows" in figures:
        return int(figures["window_rows"])
    kept = [figures[name] for name in ("resident_rows", "spilled_rows") if name in figures]
    return sum(kept) if kept else None


def _format_kept(figures: Mapping[str, Any]) -> str:
    kept = _kept_rows(figures)
    return "-" if kept is None else f"{kept:,}"


def _format_state(figures: Mapping[str, Any]) -> str:
    """Bytes of segments."""
    return size(figures["state_bytes"]) if "state_bytes" in figures else "-"


def _format_skew(figures: Mapping[str, Any]) -> str:
    """The rows of the largest cell, as a multiple of the average: 1 where all cells have as many."""
    kept = _kept_rows(figures)
    if not kept or "largest_cell_rows" not in figures:
        return "-"
    return f"{figures['largest_cell_rows'] * figures['cells'] / kept:.2f}"


def _format_estimate(figures: Mapping[str, Any]) -> str:
    estimate = estimate_of(figures)
    return "-" if estimate is None else f"{estimate.total:,.0f} ±{max(0.0, estimate.high - estimate.total):,.0f}"


def _rate(figures: Mapping[str, Any]) -> str:
    return f"{figures['rows'] / figures['took']:,.0f}" if figures["took"] else "-"


COLUMNS: tuple[tuple[str, int, Cell], ...] = (
    ("batch", 6, _count("batch")),
    ("rows in", 11, _count("rows")),
    ("rows/s", 10, _rate),
    ("results", 12, _count("found")),
    ("estimate", 19, _format_estimate),
    ("kept rows", 12, _format_kept),
    ("state", 9, _format_state),
    ("skew", 6, _format_skew),
    ("late", 7, _count("late_rows")),
    ("probe", 9, _time("probe_us")),
    ("merge", 9, _time("merge_us")),
    ("took", 9, lambda figures: f"{figures['took']:.2f} s"),
)
