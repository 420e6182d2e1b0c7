"""The figures of a join of streams, by name, from the cells that count them to the page that shows them.

    a cell counts  --Figure.over_cells-->  a micro-batch, in the query's progress  --Figure.over_time-->  the run so far

A new figure is a row here and one place that counts it. With a label, it is shown live and kept in recordings.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Figure(NamedTuple):
    """A figure that is counted. Cells that do not count it leave it out."""

    name: str
    text: str
    unit: Literal["rows", "bytes", "cells", "microseconds", "yes or no"] = "rows"
    over_cells: Literal["sum", "max"] = "sum"  # sum: each cell has a part; max: the largest counts, or all agree
    over_time: Literal["last", "sum"] = "last"
    label: str = ""


FIGURES = {
    figure.name: figure
    for figure in (
        Figure("results", "results, before the conjuncts that Spark evaluates", over_time="sum"),
        Figure("reactive", "results that were found by background work", over_time="sum"),
        Figure("resident_rows", "rows in memory"),
        Figure("resident_bytes", "bytes of rows in memory", "bytes"),
        Figure("spilled_rows", "rows on disk only, before the micro-batch is committed"),
        Figure("spilled_bytes", "bytes of rows on disk only", "bytes"),
        Figure("state_bytes", "bytes of the segments that the new manifests name", "bytes", label="state"),
        Figure("cells", "cells that were active", "cells"),
        Figure("largest_cell_rows", "rows of the largest cell", over_cells="max"),
        Figure("finished", "cells that have finished", "cells"),
        Figure("late_rows", "late rows that were dropped", over_time="sum", label="late rows"),
        Figure("evicted_rows", "rows that left the window, once for each cell that kept them", over_time="sum"),
        Figure("merges", "runs of rows that were merged into larger ones", over_time="sum"),
        Figure("probe_us", "time spent on probing", "microseconds", over_time="sum"),
        Figure("merge_us", "time spent on merging runs", "microseconds", over_time="sum"),
        Figure("cell_us", "time spent in cells, including writing state", "microseconds", over_time="sum"),
        # These are for all cells, including those without input: they come from reports.
        Figure("emitted", "results of all micro-batches before", over_cells="max"),
        Figure("estimate", "estimate of the number of all results", over_cells="max"),
        Figure("estimate_low", "its lower bound", over_cells="max"),
        Figure("estimate_high", "its upper bound", over_cells="max"),
        Figure("limit_reached", "whether the limit is reached", "yes or no", over_cells="max"),
    )
}
FORMER = {"matches": ("results",), "window_rows": ("resident_rows", "spilled_rows")}
"""Figures that windowed joins reported up to version 0.2, and the current figures whose sum they are."""
SHOWN = tuple(figure for figure in FIGURES.values() if figure.label)
