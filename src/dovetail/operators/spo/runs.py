"""The rows of one stream that are in the window, as sorted runs.

    [ slide 1 ][ slide 2 ] … [ slide k ] [new][n]
    immutable parts, sorted once          small runs, merged as they grow
    expire as a whole                  up to a slide, or less where that costs less (operators/spo/runs.py)

What arrives at once is a run, even if it spans more than a slide; but never more than half a window, so that what is
kept does not become much longer than the window.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.core.metrics import Counters
from dovetail.core.rows import Side, take_rows
from dovetail.operators.spo.positions import COLUMNS, Extent, Flags, WindowPositions, Words, joined
from dovetail.operators.spo.sorted_part import PartBuilder, SortedPart
from dovetail.storage.blocks import Block, BlockStore
from dovetail.window import Window

MEMORY = 0.98  # of what was measured before, at each measurement
MOST_CUTS = 10  # the smallest run is a slide / 2^10
CONFIDENT = 16  # runs that must have been probed, before they say anything


@dataclass(slots=True)
class RunCosts:
    """Sums of the past, and the seconds since this was made."""

    merged_rows: float = 0.0
    merging: float = 0.0  # seconds
    probed_runs: float = 0.0
    probing: float = 0.0
    merge_seconds: float = 0.0
    probe_seconds: float = 0.0

    def to_json(self) -> list[float]:
        return [self.merged_rows, self.merging, self.probed_runs, self.probing]

    def remember(self, sums: list[float]) -> None:
        """What `to_json` gave before."""
        self.merged_rows, self.merging, self.probed_runs, self.probing = sums

    def merged(self, rows: int, seconds: float) -> None:
        self.merged_rows = MEMORY * self.merged_rows + rows
        self.merging = MEMORY * self.merging + seconds
        self.merge_seconds += seconds

    def probed(self, runs: int, seconds: float) -> None:
        self.probed_runs = MEMORY * self.probed_runs + runs
        self.probing = MEMORY * self.probing + seconds
        self.probe_seconds += seconds

    def cuts(self, batch_rows: int, slide_rows: int, window_rows: int) -> int:
        """How often a slide should be halved."""
        if self.probed_runs < CONFIDENT or self.merged_rows < 1 or slide_rows <= batch_rows:
            return 0
        merge_row, probe_run = self.merging / self.merged_rows, self.probing / self.probed_runs

        def cost(cuts: int) -> float:
            size = slide_rows / (1 << cuts)
            merges = math.log2(size / batch_rows)
            merging, probing = batch_rows * merges * merge_row, (window_rows / size + merges) * probe_run
            return merging + probing

        possible = min(MOST_CUTS, int(math.log2(slide_rows / max(1, batch_rows))))
        return min(range(possible + 1), key=cost)


@dataclass(slots=True)
class Run:
    """Rows of one side that came one after the other."""

    kept: SortedPart
    places: WindowPositions
    extent: Extent
    partnered: Flags  # tracked for left rows only
    reported: Flags  # left rows of which all has been said
    blocks: dict[str, Block] = field(default_factory=dict)  # where they are kept for a restart: rows, orders

    @property
    def rows(self) -> int:
        return int(self.kept.batch.num_rows)


class Runs:
    """Oldest first."""

    def __init__(
        self, side: Side, keeping: PartBuilder, window: Window, delta: int | None, costs: RunCosts, counters: Counters
    ) -> None:
        self._side = side
        self._keeping = keeping
        self._window = window
        self._delta = delta  # None: what costs least
        self._costs = costs
        self._counters = counters
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self._runs)

    @property
    def nbytes(self) -> int:
        return sum(run.kept.batch.nbytes for run in self._runs)

    @property
    def newest(self) -> pa.RecordBatch | None:
        """Rows of the latest run, as an example."""
        return self._runs[-1].kept.batch if self._runs else None

    def add(
        self, batch: pa.RecordBatch, places: WindowPositions, flags: tuple[Flags, Flags], probes: pa.RecordBatch | None
    ) -> None:
        """New rows, with their `partnered` and `reported`; probes are some rows that will look for them."""
        most = max(self._window.slide, self._window.size // 2)
        for rows in _pieces(self._positions(places), most):
            some = (flags[0][rows], flags[1][rows])
            self._runs.append(self._sort_rows(take_rows(batch, rows), places.of(rows), some, probes))
            self._merge(batch.num_rows, probes)

    def pop_over(self, before: int) -> Iterator[Run]:
        """Evict runs whose rows are all before `before`; late rows may be in later runs."""
        over = [_last(self._window, run.extent) < before for run in self._runs]
        gone = [run for run, is_over in zip(self._runs, over, strict=True) if is_over]
        self._runs = [run for run, is_over in zip(self._runs, over, strict=True) if not is_over]
        yield from gone

    def written(self, store: BlockStore, with_flags: bool) -> list[dict[str, Any]]:
        """All runs as immutable blocks: rows and orders once, flags as they are now."""
        return [self._write_run(run, store, with_flags) for run in self._runs]

    def read(self, store: BlockStore, schema: pa.Schema, runs: list[dict[str, Any]]) -> None:
        self._runs.extend(self._read(store, schema, run) for run in runs)

    def _sort_rows(
        self, batch: pa.RecordBatch, places: WindowPositions, flags: tuple[Flags, Flags], probes: pa.RecordBatch | None
    ) -> Run:
        order = self._keeping.row_order(batch)
        if order is not None:
            batch, places, flags = take_rows(batch, order), places.of(order), (flags[0][order], flags[1][order])
        return Run(self._keeping.keep(batch, probes), places, places.extent(), *flags)

    def _merge(self, batch_rows: int, probes: pa.RecordBatch | None) -> None:
        """Small runs become larger ones, as many of a size come together."""
        runs, delta = self._runs, self._largest(batch_rows)
        while len(runs) > 1 and runs[-2].rows <= 2 * runs[-1].rows and self._span(runs[-2], runs[-1]) <= delta:
            started = time.perf_counter()
            newer, older = runs.pop(), runs.pop()
            flags = (
                np.concatenate([older.partnered, newer.partnered]),
                np.concatenate([older.reported, newer.reported]),
            )
            batch = pa.concat_batches([older.kept.batch, newer.kept.batch])
            runs.append(self._sort_rows(batch, joined([older.places, newer.places]), flags, probes))
            self._costs.merged(batch.num_rows, time.perf_counter() - started)
            self._counters.merges += 1

    def _largest(self, batch_rows: int) -> int:
        """How much of the stream a run may span: rows or microseconds."""
        if self._delta is not None:
            return self._delta
        rows = self.rows
        slide_rows = rows * self._window.slide // max(1, self._window.size)
        return self._window.slide >> self._costs.cuts(batch_rows, slide_rows, rows)

    def _span(self, older: Run, newer: Run) -> int:
        """Of the stream, of which only some rows may be here."""
        ends = [end for run in (older, newer) for end in _ends(self._window, run.extent)]
        return max(ends) - min(ends)

    def _positions(self, places: WindowPositions) -> Words:
        return places.own if _by_own(self._window) else places.at

    def _write_run(self, run: Run, store: BlockStore, with_flags: bool) -> dict[str, Any]:
        stem = self._side.alias
        if not run.blocks:
            batch = run.kept.batch
            for name, column in zip(COLUMNS, run.places, strict=True):
                batch = batch.append_column(name, pa.array(column))
            run.blocks = {"rows": store.write(batch, stem)}
            if (orders := run.kept.orders) is not None:
                run.blocks["orders"] = store.write(orders, stem)
        blocks = dict(run.blocks)
        if with_flags:
            flags = pa.RecordBatch.from_pydict({"partnered": run.partnered, "reported": run.reported})
            blocks["flags"] = store.write(flags, stem)
        return {"way": run.kept.way, "blocks": {kind: block.to_json() for kind, block in blocks.items()}}

    def _read(self, store: BlockStore, schema: pa.Schema, fields: dict[str, Any]) -> Run:
        blocks = {kind: Block.from_json(block) for kind, block in fields["blocks"].items()}
        stored = {kind: store.read(block, verify=True) for kind, block in blocks.items()}
        columns = stored["rows"].columns
        width = len(columns) - len(COLUMNS)
        places = WindowPositions(*(np.asarray(column) for column in columns[width:]))
        batch = pa.RecordBatch.from_arrays(columns[:width], schema=schema)
        kept = self._keeping.again(batch, stored.get("orders"), fields["way"])
        nothing = np.zeros(batch.num_rows, np.bool_)
        run = Run(kept, places, places.extent(), nothing, nothing.copy())
        if "flags" in stored:
            run.partnered, run.reported = (np.array(stored["flags"].column(n)) for n in ("partnered", "reported"))
        run.blocks = {kind: block for kind, block in blocks.items() if kind != "flags"}
        return run


def _by_own(window: Window) -> bool:
    return window.scope == "per_stream" and not window.by_time


def _ends(window: Window, extent: Extent) -> tuple[int, int]:
    return extent.own if _by_own(window) else extent.at


def _last(window: Window, extent: Extent) -> int:
    return _ends(window, extent)[1]


def _pieces(at: Words, most: int) -> Iterator[NDArray[np.int64]]:
    """Rows that span no more than that, in the order of arrival."""
    if len(at) == 0:
        return
    first = int(at.min())
    if int(at.max()) - first < most:
        yield np.arange(len(at))
        return
    pieces = (at - first) // most
    order = np.argsort(pieces, kind="stable")
    starts = np.flatnonzero(np.diff(pieces[order], prepend=-1))
    yield from np.split(order, starts[1:])
