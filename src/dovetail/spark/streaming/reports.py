"""Reports with which the cells of a streaming join inform each other: emitted results, and expected results.

Spark adds up the figures of the cells that ran in a micro-batch, but only the driver sees them, and a finished cell no
longer runs. So each cell writes a report at the end of a micro-batch, as the name of an empty object: one listing reads
the reports of all cells. In an object store, a worker lists them once per micro-batch.

    <cell>.<micro-batch>.<emitted>.<estimate>.<margin>

A report is used only in later micro-batches, when its own is committed. So all cells and all attempts of a micro-batch
read the same reports. If several attempts of a micro-batch have left reports, the one with the fewest results is used:
`emitted` is never too large.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from dovetail.core.metrics import Estimate
from dovetail.estimation.estimate import CONFIDENCE
from dovetail.storage.open_store import Place, open_store
from dovetail.storage.store import Store
from dovetail.storage.stored_state import REPORT

NOTHING = "-"
MOST_OLD = 8  # old reports of a cell kept in a store, to delete them together: each deletion costs a few requests


class Report(NamedTuple):
    """The figures of one cell, since the start of the query."""

    emitted: int
    estimate: int | None = None  # of all its results; None if there is none
    margin: int = 0

    @classmethod
    def from_estimate(cls, emitted: int, estimate: Estimate | None) -> Report:
        """One bound may be clipped by known facts, so the margin is taken from the other."""
        if estimate is None:
            return cls(emitted)
        margin = max(estimate.high - estimate.total, estimate.total - estimate.low)
        return cls(emitted, max(emitted, round(estimate.total)), math.ceil(margin))


class Totals(NamedTuple):
    """The figures of all cells, up to the previous micro-batch."""

    emitted: int
    estimate: Estimate | None

    @classmethod
    def from_reports(cls, reports: Iterable[Report], *, share_rows: bool) -> Totals:
        """Variances of independent cells add up. Cells that share rows may have correlated errors: margins add up."""
        found = list(reports)
        emitted = sum(report.emitted for report in found)
        expected = [report.estimate for report in found if report.estimate is not None]
        if not found or len(expected) < len(found):
            return cls(emitted, None)
        margins = [report.margin for report in found]
        total, margin = sum(expected), sum(margins) if share_rows else math.hypot(*margins)
        return cls(emitted, Estimate(total, max(emitted, total - margin), total + margin, CONFIDENCE))

    def missing(self, limit: int | None) -> int | None:
        """How many results are still wanted. None: all."""
        return None if limit is None else max(0, limit - self.emitted)

    def figures(self, limit_reached: bool) -> dict[str, int]:
        """Figures, named as in core/figures.py."""
        known = {"emitted": self.emitted, "limit_reached": int(limit_reached)}
        if self.estimate is not None:
            names = ("estimate", "estimate_low", "estimate_high")
            known |= dict(zip(names, map(round, self.estimate[:3]), strict=True))
        return known


class Reports:
    """The reports of the cells of a query, in one of its micro-batches."""

    def __init__(self, directory: Place, batch: int) -> None:
        self._place = open_store(directory)
        self._batch = batch
        self._place.prepare()
        self._names = _listed(self._place, batch)
        self._found: dict[int, dict[int, Report]] = {}  # by cell, then by micro-batch
        for name in self._names:
            cell, number, emitted, estimate, margin = name.split(".")
            report = Report(int(emitted), None if estimate == NOTHING else int(estimate), int(margin))
            batches = self._found.setdefault(int(cell), {})
            batches[int(number)] = min(report, batches.get(int(number), report), key=lambda one: one.emitted)

    def totals(self, *, share_rows: bool = True) -> Totals:
        return Totals.from_reports(filter(None, map(self._latest, self._found)), share_rows=share_rows)

    def write(self, cell: int, report: Report) -> None:
        """Write the report at the end of a cell's micro-batch. The previous report is kept for another attempt."""
        if report == self._latest(cell):
            return
        estimate = NOTHING if report.estimate is None else report.estimate
        name = f"{cell}.{self._batch}.{report.emitted}.{estimate}.{report.margin}"
        self._place.put(name, b"")
        old = tuple(f"{cell}.{batch}." for batch in self._committed(cell)[:-1])
        if self._place.path is not None or len(old) >= MOST_OLD:
            self._place.delete([name for name in self._names if name.startswith(old)])

    def _latest(self, cell: int) -> Report | None:
        committed = self._committed(cell)
        return self._found[cell][committed[-1]] if committed else None

    def _committed(self, cell: int) -> list[int]:
        return sorted(of for of in self._found.get(cell, ()) if of < self._batch)


_last_listing: dict[str, tuple[int, list[str]]] = {}
"""For each store of this process: a micro-batch, and the names that existed when it began."""


def _listed(place: Store, batch: int) -> list[str]:
    """The names of reports. Those of earlier micro-batches are complete, and only they count: a store is listed
    once.
    """
    if place.path is None and place.key in _last_listing and _last_listing[place.key][0] == batch:
        return _last_listing[place.key][1]
    names = [entry.name for entry in place.entries() if re.fullmatch(REPORT, entry.name)]
    if place.path is None:
        _last_listing[place.key] = batch, names
    return names
