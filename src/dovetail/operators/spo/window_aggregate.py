"""Aggregates for each arriving row of a stream over its partners in the window of another stream.

    kept rows, by arrival     expired | boundary | fully in the window            | doubtful | not here yet
    probes l1 … ln                   ^ for some probes                                         ^ same micro-batch

Rows that are certainly in the window of all probes, and arrived before all of them, are aggregated by the kernels
without listing pairs. At each end of the window, a pair has to satisfy one bound: two inequalities with a bound also
have a kernel. For other conditions, and for rows at both ends at once, the probes are halved recursively, down to a
few, whose pairs are checked one by one. So a micro-batch costs O(n log^2 n), however many matches there are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from dovetail.aggregates import ROW, finish, partial_columns, partial_schema, partials_by_row
from dovetail.columns.taking import take_rows
from dovetail.condition.select import Aggregate
from dovetail.core.rows import Side
from dovetail.matching import Parts
from dovetail.matching.kernel_pairs import These
from dovetail.matching.matcher import Part
from dovetail.matching.sorted_part import ProbeBatch, SortedPart
from dovetail.matching.window_positions import Extent, Flags, WindowPositions, Words, bounds, within
from dovetail.operators.spo.run import Run
from dovetail.operators.spo.runs import RunCosts
from dovetail.window import Window

FEW = 512  # probes whose doubtful pairs are checked one by one: with fewer, calls would cost more than the pairs saved
CHUNK = 1 << 18  # pairs at a time
MOST_PARTIALS = 16  # partial results per left row before they are merged


class Keeper(Protocol):
    """The operator that keeps the rows: `spo`."""

    @property
    def costs(self) -> RunCosts: ...
    @property
    def window(self) -> Window: ...
    def in_time(
        self, side: Side, batch: pa.RecordBatch, places: WindowPositions
    ) -> tuple[pa.RecordBatch, WindowPositions]: ...
    def runs_to_probe(self, side: Side, batch: pa.RecordBatch, extent: Extent) -> Iterator[Run]: ...
    def probing(self, side: Side, batch: pa.RecordBatch) -> ProbeBatch: ...
    def keep_some(self, side: Side, kept: SortedPart, rows: Words) -> SortedPart: ...


class WindowAggregate:
    """Aggregates of left rows over the right rows that an operator keeps."""

    def __init__(self, operator: Keeper, aggregates: Sequence[Aggregate], schema: pa.Schema) -> None:
        self._operator = operator
        self._aggregates = tuple(aggregates)
        self._schema = schema  # the left columns, then the aggregates

    def over(self, batch: pa.RecordBatch, places: WindowPositions) -> pa.RecordBatch:
        """The left rows with their aggregates; they are not kept."""
        batch, places = self._operator.in_time(Side.LEFT, batch, places)
        started = time.perf_counter()
        everyone = range(batch.num_rows)
        partials: list[pa.RecordBatch] = []
        probed = 0
        for run in self._operator.runs_to_probe(Side.LEFT, batch, places.extent()) if batch.num_rows else ():
            probed += 1
            partials += self._divide(batch, places, everyone, run.kept, run.places)
            if sum(part.num_rows for part in partials) > MOST_PARTIALS * batch.num_rows:
                partials = self._merge_partials(partials).to_batches()
        self._operator.costs.probed(probed, time.perf_counter() - started)
        answers = finish(self._aggregates, (), self._by_row(self._merge_partials(partials), batch.num_rows))
        width = len(self._schema) - len(self._aggregates)
        return pa.RecordBatch.from_arrays([*batch.columns[:width], *answers.columns], schema=self._schema)

    def _divide(
        self,
        batch: pa.RecordBatch,
        places: WindowPositions,
        probes: range,
        kept: SortedPart,
        kept_places: WindowPositions,
    ) -> Iterator[pa.RecordBatch]:
        """Partial results of some left rows over kept rows."""
        mine = places.of(np.arange(probes.start, probes.stop))
        limits = bounds(self._operator.window, mine, kept_places)
        possible = np.logical_and.reduce([third >= least.min() for least, third in limits])
        doubts = [third < least.max() for least, third in limits]
        doubtful = np.add.reduce(doubts, dtype=np.int8)
        probing = self._operator.probing(Side.LEFT, batch.slice(probes.start, len(probes)))
        matchers = []
        if (sure := possible & (doubtful == 0)).any():
            matchers.append(probing.match(_some(kept, sure)))
        rest = possible & (doubtful > 0)
        if kept.part is not None:
            for limit, doubt in zip(limits, doubts, strict=True):
                if (one := possible & doubt & (doubtful == 1)).any():
                    matchers.append(probing.match_bounded(kept.only(one), *limit))
            rest &= doubtful > 1
        for matcher in matchers:
            yield _shift(partials_by_row(matcher, self._aggregates), probes.start)
        if rest.any():
            yield from self._halve_probes(batch, places, probes, kept, kept_places, np.flatnonzero(rest))

    def _halve_probes(
        self,
        batch: pa.RecordBatch,
        places: WindowPositions,
        probes: range,
        kept: SortedPart,
        kept_places: WindowPositions,
        rows: Words,
    ) -> Iterator[pa.RecordBatch]:
        """Halve the probes, so that fewer kept rows are in doubt. Pairs of a few probes are checked one by one."""
        rest, rest_places = self._operator.keep_some(Side.RIGHT, kept, rows), kept_places.of(rows)
        if len(probes) <= FEW:
            probing = self._operator.probing(Side.LEFT, batch.slice(probes.start, len(probes)))
            mine = places.of(np.arange(probes.start, probes.stop))
            matcher = self._in_window(probing, mine, rest, rest_places)
            yield _shift(partials_by_row(matcher, self._aggregates), probes.start)
            return
        middle = probes.start + len(probes) // 2
        for half in (range(probes.start, middle), range(middle, probes.stop)):
            yield from self._divide(batch, places, half, rest, rest_places)

    def _in_window(
        self, probing: ProbeBatch, mine: WindowPositions, kept: SortedPart, kept_places: WindowPositions
    ) -> Parts:
        """The pairs in the window, found one by one."""
        found = []
        for lefts, rights in probing.match(kept).pairs(CHUNK):
            good = within(self._operator.window, mine, lefts, kept_places, rights)
            good &= kept_places.own[rights] < mine.other[lefts]
            found.append((lefts[good], rights[good]))
        lefts, rights = (np.concatenate([pair[s] for pair in found] or [np.empty(0, np.int64)]) for s in Side)
        sizes = (probing.batch.num_rows, kept.batch.num_rows)
        everything = (np.arange(sizes[0]), np.arange(sizes[1]))
        return Parts((probing.batch, kept.batch), (Part(These(lefts, rights, sizes), everything, ()),))

    def _merge_partials(self, partials: list[pa.RecordBatch]) -> pa.Table:
        """One row per left row that has partners."""
        columns = partial_columns(self._aggregates)
        schema = pa.schema([pa.field(ROW, pa.int64()), *partial_schema(self._aggregates, ())])
        merges = [(name, column.merge) for name, column in zip(schema.names[1:], columns, strict=True)]
        merged = pa.Table.from_batches(partials, schema).group_by(ROW).aggregate(merges)
        return (
            merged.select([ROW, *(f"{name}_{how}" for name, how in merges)]).rename_columns(schema.names).cast(schema)
        )

    def _by_row(self, merged: pa.Table, rows: int) -> pa.RecordBatch:
        """One row per left row, with or without partners."""
        lines = np.full(rows, -1)
        lines[np.asarray(merged[ROW])] = np.arange(merged.num_rows)
        taken = pa.array(lines, mask=lines < 0)
        arrays = [column.combine_chunks().take(taken) for column in merged.columns[1:]]
        return pa.RecordBatch.from_arrays(arrays, schema=partial_schema(self._aggregates, ()))


def _some(kept: SortedPart, chosen: Flags) -> SortedPart:
    """Some of the kept rows; if they are not sorted, they are renumbered."""
    if chosen.all():
        return kept
    if kept.part is not None:
        return kept.only(chosen)
    batch = take_rows(kept.batch, np.flatnonzero(chosen))
    return SortedPart(batch, np.arange(batch.num_rows), None)


def _shift(partials: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    numbers = np.asarray(partials.column(0)) + rows
    return partials.set_column(0, partials.schema.field(0), pa.array(numbers))
