"""The rows of one stream that are in the window, as sorted runs.

    [ slide 1 ][ slide 2 ] … [ slide k ] [new][n]
    immutable parts, sorted once          small runs, merged as they grow
    expire as a whole                  up to a slide, or less if that costs less
    on disk, oldest first, if memory is too small for all (operators/spo/run.py)

Rows that arrive together form a run, even if it spans more than a slide, but never more than half a window, so that the
kept rows do not span much more than the window. With a budget, no run exceeds a share of it, since a run is loaded as a
whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import concatenate
from dovetail.columns.taking import take_rows
from dovetail.core.codes import LEAST, MOST
from dovetail.core.rows import Side
from dovetail.matching.sorted_part import PartBuilder, Zone, ZoneMaps, can_match
from dovetail.matching.window_positions import Extent, Flags, WindowPositions, Words, joined
from dovetail.operators.protocol import Workspace
from dovetail.operators.spo.run import Run, SpilledPart, footprint, write_flags
from dovetail.storage.blocks import Block
from dovetail.storage.budget import Budget
from dovetail.window import SLIDES, Window

MEMORY = 0.98  # decay of past measurements, at each new one
MOST_CUTS = 10  # the smallest run is a slide / 2^10
CONFIDENT = 16  # runs that must have been probed before the measurements are used

SMALL = 1 << 12  # rows: opening a run costs more than merging it

NO_LIMIT = 2**62
LOADED_SHARE = 1.5  # times a part's bytes, including copies of its orders at the edge of the window
LOADED, MERGED = "loaded part", "merged run"  # holders of memory
MOST_MAPPED = 4096  # parts that stay mapped: far below Linux's limit


@dataclass(slots=True)
class RunCosts:
    """Decayed sums of past costs, and the seconds since this was created."""

    merged_rows: float = 0.0
    merging: float = 0.0  # seconds
    probed_runs: float = 0.0
    probing: float = 0.0
    merge_seconds: float = 0.0
    probe_seconds: float = 0.0

    def to_json(self) -> list[float]:
        return [self.merged_rows, self.merging, self.probed_runs, self.probing]

    def remember(self, sums: list[float]) -> None:
        """Restore what `to_json` returned."""
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
        """How many times a slide should be halved."""
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


class RunShares(NamedTuple):
    """How a budget is divided, in its unit. The rest is for what a probe loads, and for the input buffer."""

    part: int  # at most, for one run
    arriving: int  # probing rows, and their sort order
    residents: int  # runs of both sides in memory, and metadata of spilled parts

    @classmethod
    def of(cls, budget: Budget, block_rows: int) -> RunShares:
        limit = budget.limit
        if limit is None:
            return cls(NO_LIMIT, NO_LIMIT, NO_LIMIT)
        if budget.unit == "rows":
            part = max(1, limit // block_rows // 4) * block_rows
            return cls(part, block_rows, limit - part - block_rows)
        part, arriving, waiting = limit * 9 // 32, limit * 3 // 32, limit // 16  # waiting: input buffer, sample
        return cls(part, arriving, limit - int(part * LOADED_SHARE) - arriving - waiting)


class Runs:
    """Runs of one side, oldest first; those that do not fit in memory are spilled parts."""

    def __init__(
        self,
        side: Side,
        builder: PartBuilder,
        zones: ZoneMaps,
        workspace: Workspace,
        window: Window,
        costs: RunCosts,
        shares: RunShares,
        *,
        tracked: bool,
    ) -> None:
        self._side = side
        self._builder = builder
        self._zones = zones
        self._budget = workspace.budget
        self._store = workspace.blocks
        self._counters = workspace.counters
        self._schema = workspace.condition.schema(side)
        self._window = window
        self._axis = 1 if window.by_own else 0  # of the positions: own, or at
        self._delta: int | None = workspace.parameters.get("delta")  # None: the cheapest
        self._costs = costs
        self._shares = shares
        self._tracked = tracked  # whether partners of its rows are tracked
        self._runs: list[Run] = []
        self._parts: list[SpilledPart] = []
        self._held_parts = False  # whether the budget counts any
        self.free_memory: Callable[[int, int], None] = lambda rows, nbytes: None  # makes room in memory for a new run

    def __iter__(self) -> Iterator[Run]:
        """All runs; a spilled part stays loaded until the next one is requested."""
        return self.scan(lambda _: True)

    def scan(self, wanted: Callable[[Extent], bool], reach: Callable[[], Zone | None] | None = None) -> Iterator[Run]:
        """Runs with wanted extents; spilled parts only if probes with this reach can match them."""
        for run in self._runs:
            if wanted(run.extent):
                yield run
        parts = [part for part in self._parts if wanted(part.extent)]
        if parts and reach is not None:
            asked = reach()
            parts = [part for part in parts if can_match(asked, part.zone)]
        for part in parts:
            yield from self._load(part)

    def open_rows(self, wanted: Callable[[Extent], bool]) -> Iterator[Run]:
        """Like `scan`, without spilled parts whose rows all have a partner or have been reported."""
        yield from (run for run in self._runs if wanted(run.extent))
        for part in self._parts:
            if part.has_open_rows and wanted(part.extent):
                yield from self._load(part)

    def __len__(self) -> int:
        return len(self._runs) + len(self._parts)

    @property
    def rows(self) -> int:
        """Rows in memory and on disk."""
        return self.resident_rows + self.spilled_rows

    @property
    def resident_rows(self) -> int:
        return sum([run.rows for run in self._runs])

    @property
    def spilled_rows(self) -> int:
        return sum([part.rows for part in self._parts])

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum([run.nbytes for run in self._runs])

    @property
    def parts_nbytes(self) -> int:
        """Bytes of the metadata of spilled parts in memory."""
        return sum([part.nbytes for part in self._parts]) if self._parts else 0

    @property
    def spilled_bytes(self) -> int:
        """Bytes on disk."""
        return sum([part.spilled_bytes for part in self._parts])

    @property
    def oldest(self) -> int | None:
        """The position of the first row in memory."""
        return self._runs[0].extent.at[0] if self._runs else None

    @property
    def newest(self) -> pa.RecordBatch | None:
        """Rows of the latest run, as a sample."""
        if self._runs:
            return self._runs[-1].kept.batch
        batches = [run.kept.batch for part in self._parts[-1:] for run in self._load(part)]
        return batches[0] if batches else None

    def add(
        self, batch: pa.RecordBatch, places: WindowPositions, flags: tuple[Flags, Flags], probes: pa.RecordBatch | None
    ) -> None:
        """Add rows with their flags `partnered` and `reported`; probes: a sample of the rows that will probe."""
        for rows in _pieces(self._positions(places), self._longest):
            for piece, some in self._fitting(batch, rows):
                self._add_run(piece, places.of(some), (flags[0][some], flags[1][some]), probes)
                self._merge(batch.num_rows, probes)

    def pop_over(self, before: int, *, wants_open_rows: bool) -> Iterator[Run]:
        """Evict runs whose rows are all before `before`; late rows may be in later runs.

        Spilled parts are removed without being read, unless they have open rows and those are wanted.
        """
        axis = self._axis
        over = [run for run in self._runs if run.extent[axis][1] < before]
        if over:
            self._runs = [run for run in self._runs if run.extent[axis][1] >= before]
            self._counters.evicted_rows += sum(run.rows for run in over)
            yield from over
        expired = [part for part in self._parts if part.extent[axis][1] < before]
        if expired:
            self._parts = [part for part in self._parts if part.extent[axis][1] >= before]
        self._counters.evicted_rows += sum(part.rows for part in expired)
        for part in expired:
            if wants_open_rows and part.has_open_rows:
                yield from self._load(part)
            self._store.remove(part.all_blocks)
        self.hold()

    def spill(self) -> None:
        """Write the oldest runs in memory as one part: as many as fit in a part, but not the newest."""
        rows = nbytes = count = 0
        for run in self._runs[: max(1, len(self._runs) - 1)]:
            rows, nbytes = rows + run.rows, nbytes + run.nbytes
            if count and (not self._fits_part(rows, nbytes) or self._span(self._runs[0], run) > self._longest_part()):
                break
            count += 1
        run = self._runs[0] if count == 1 else self._merge_runs(self._runs[:count], None)
        part = SpilledPart.spill(
            run, self._store, self._side.alias, self._zones.zone(run.kept.batch), tracked=self._tracked
        )
        del self._runs[:count]
        self._parts.append(part)
        self.hold()

    def hold(self) -> None:
        """Report the memory use to the budget."""
        self._budget.hold(f"{self._side.alias} window", self.resident_rows, self.nbytes)
        if self._parts or self._held_parts:
            self._budget.hold(f"{self._side.alias} parts", 0, self.parts_nbytes)
            self._held_parts = bool(self._parts)

    def write(self) -> list[dict[str, Any]]:
        """Write all runs as immutable blocks: rows and orders once, flags whenever they have changed."""
        described: list[dict[str, Any]] = []
        for part in self._parts:
            if self._tracked and part.flags_block is None:
                part.flags_block = write_flags(self._store, self._side.alias, *part.flags)
            described.append({**_describe(part.blocks, part.flags_block, part.way), "spilled": part.to_json()})
        for run in self._runs:
            flags = run.write_flags(self._store, self._side.alias) if self._tracked else None
            described.append(_describe(run.write(self._store, self._side.alias), flags, run.kept.way))
        return described

    def read(self, runs: list[dict[str, Any]]) -> None:
        """Restore what `write` described. With a smaller budget than before, runs are split and spilled."""
        for fields in runs:
            described = dict(fields["blocks"])
            flags_block = Block.from_json(described.pop("flags")) if "flags" in described else None
            flags = self._read_flags(flags_block)
            if "spilled" in fields and self._budget.limit is not None:
                blocks = {kind: Block.from_json(block) for kind, block in described.items()}
                part = SpilledPart.of_json(fields["spilled"], blocks, fields["way"])
                if self._fits_part(part.rows, part.run_bytes):
                    self._readmit_part(part, flags, flags_block)
                    continue
            run = self._read_run(described, fields["way"])
            if flags is None:
                run.clear_flags()
            else:
                run.take_flags(*flags, flags_block)
            self._readmit(run)
        self.hold()

    def _read_run(self, described: dict[str, Any], way: int) -> Run:
        """Restore a written run and its flags. Sorted runs stay on the mapped blocks."""
        names = [fields["name"] for fields in described.values()]
        made = self._store.find_made(names)
        if isinstance(made, Run):
            return made
        blocks = {kind: Block.from_json(fields) for kind, fields in described.items()}
        stored = {kind: self._store.read(block, verify=True) for kind, block in blocks.items()}
        run = Run.of_blocks(stored, blocks, self._schema, self._builder, way)
        if run.kept.part is not None:
            self._store.keep_made(names, run)
        return run

    def _read_flags(self, block: Block | None) -> tuple[Flags, Flags] | None:
        if block is None:
            return None
        stored = self._store.read(block, verify=True)
        return np.array(stored.column("partnered")), np.array(stored.column("reported"))

    def _readmit_part(self, part: SpilledPart, flags: tuple[Flags, Flags] | None, flags_block: Block | None) -> None:
        if part.zone is not None and len(part.zone) != self._zones.links:
            part.zone = ((LEAST, MOST),) * self._zones.links  # written by another release
        if self._tracked and flags is not None:
            part.take_flags(*flags)
            part.flags_block = flags_block
        self._parts.append(part)
        self.hold()

    def _readmit(self, run: Run) -> None:
        """Add a restored run, in pieces if it is too large for the budget."""
        if self._fits_part(run.rows, run.nbytes):
            self.free_memory(run.rows, run.nbytes)
            self._runs.append(run)
            if self._budget.limit is not None:
                self.hold()
            return
        by_place = np.argsort(self._positions(run.places), kind="stable")
        for piece, rows in self._fitting(run.kept.batch, by_place):
            flags = (run.partnered[rows], run.reported[rows])
            self._add_run(piece, run.places.of(rows), flags, None, run.kept.way)

    def _load(self, part: SpilledPart) -> Iterator[Run]:
        self._budget.hold(LOADED, part.rows, part.loaded_bytes)
        self._counters.pages_read_random += len(part.blocks)
        yield part.load(self._store, self._schema, self._builder)
        part.unload(stay_mapped=len(self._parts) <= MOST_MAPPED)
        self._budget.release(LOADED)

    def _add_run(
        self,
        batch: pa.RecordBatch,
        places: WindowPositions,
        flags: tuple[Flags, Flags],
        probes: pa.RecordBatch | None,
        way: int = 0,
    ) -> None:
        self.free_memory(batch.num_rows, self._footprint(batch))
        self._runs.append(self._sort_rows(batch, places, flags, probes, way))
        self.hold()

    def _fitting(self, batch: pa.RecordBatch, rows: Words) -> Iterator[tuple[pa.RecordBatch, Words]]:
        """Rows in pieces that each fit in a part. Pieces too large by the average row size are not even copied."""
        if self._fits_part(len(rows), self._footprint(batch) * len(rows) // batch.num_rows) or len(rows) == 1:
            piece = take_rows(batch, rows)
            if self._fits_part(len(rows), self._footprint(piece)) or len(rows) == 1:
                yield piece, rows
                return
            del piece
        for half in np.array_split(rows, 2):
            yield from self._fitting(batch, half)

    def _footprint(self, batch: pa.RecordBatch) -> int:
        return footprint(batch, sorted_rows=self._builder.sorts)

    def _fits_part(self, rows: int, nbytes: int) -> bool:
        return self._budget.measure(rows, nbytes) <= self._shares.part

    def _sort_rows(
        self,
        batch: pa.RecordBatch,
        places: WindowPositions,
        flags: tuple[Flags, Flags],
        probes: pa.RecordBatch | None,
        way: int = 0,
    ) -> Run:
        order = self._builder.row_order(batch)
        if order is not None:
            batch, places, flags = take_rows(batch, order), places.of(order), (flags[0][order], flags[1][order])
        return Run(self._builder.keep(batch, probes, way), places, places.extent(), *flags)

    def _merge(self, batch_rows: int, probes: pa.RecordBatch | None) -> None:
        """Repeatedly merges the newest run with others of similar size and time."""
        delta = self._largest(batch_rows)
        while (older := self._mergeable(self._runs[-1], delta)) is not None:
            started = time.perf_counter()
            newest = self._runs.pop()
            self._runs.remove(older)
            merged = self._merge_runs([older, newest], probes)
            self._runs.append(merged)
            self.hold()
            self._costs.merged(merged.rows, time.perf_counter() - started)
            self._counters.merges += 1

    def _mergeable(self, newest: Run, delta: int) -> Run | None:
        """The latest run to merge with the newest. Rows that arrive out of order belong to several."""
        for run in reversed(self._runs[:-1]):
            rows = run.rows + newest.rows
            longest = max(delta, self._longest_small) if rows <= SMALL and self._delta is None else delta
            if (
                run.rows <= 2 * newest.rows
                and self._span(run, newest) <= longest
                and self._fits_part(rows, run.nbytes + newest.nbytes)
            ):
                return run
        return None

    def _merge_runs(self, runs: list[Run], probes: pa.RecordBatch | None) -> Run:
        """All rows of neighbouring runs as one run, which is briefly in memory in addition to them."""
        self._budget.hold(MERGED, sum(run.rows for run in runs), sum(run.nbytes for run in runs))
        flags = (
            np.concatenate([run.partnered for run in runs]),
            np.concatenate([run.reported for run in runs]),
        )
        batch = concatenate([run.kept.batch for run in runs])
        way = max(runs, key=lambda run: run.rows).kept.way  # if there are no probes to decide by
        merged = self._sort_rows(batch, joined([run.places for run in runs]), flags, probes, way)
        self._budget.release(MERGED)
        return merged

    def _largest(self, batch_rows: int) -> int:
        """How much of the stream a run may span, in rows or microseconds."""
        if self._delta is not None:
            return self._delta
        rows = self.rows
        slide_rows = rows * self._window.slide // max(1, self._window.size)
        return self._window.slide >> self._costs.cuts(batch_rows, slide_rows, rows)

    @cached_property
    def _longest(self) -> int:
        """The maximal span of any run, so that the kept rows do not span much more than the window."""
        return max(self._window.slide, self._window.size // 2)

    @cached_property
    def _longest_small(self) -> int:
        """The maximal span of a run with few rows: a tenth of what is kept, including the time for late rows."""
        delay = max(self._window.delay, *(delay or 0 for delay in self._window.watermarks))
        return min(self._longest, (self._window.size + delay) // SLIDES)

    def _longest_part(self) -> int:
        """The maximal span of a spilled part: it should not be kept much longer than its rows."""
        return max(self._window.slide, self._window.size // SLIDES)

    def _span(self, older: Run, newer: Run) -> int:
        """The span of both runs in the stream; only some of its rows may be here."""
        first, last = zip(older.extent[self._axis], newer.extent[self._axis], strict=True)
        return max(last) - min(first)

    def _positions(self, places: WindowPositions) -> Words:
        return places[self._axis]


def _describe(blocks: dict[str, Block], flags: Block | None, way: int) -> dict[str, Any]:
    if flags is not None:
        blocks = {**blocks, "flags": flags}
    return {"way": way, "blocks": {kind: block.to_json() for kind, block in blocks.items()}}


def _pieces(at: Words, most: int) -> Iterator[NDArray[np.int64]]:
    """Rows in pieces that span at most this much, in the order of arrival."""
    if len(at) == 0:
        return
    if int(at.max()) - int(at.min()) < most:
        yield np.arange(len(at))
        return
    pieces = at // most  # the same bounds in every batch, so that adjacent runs can be merged
    order = np.argsort(pieces, kind="stable")
    yield from np.split(order, 1 + np.flatnonzero(np.diff(pieces[order])))
