"""A slice of a Diag-Join: consecutive rows of RN, and the rows of R1 at the same relative positions.

    R1     . . [   reach   |  beside the step  |   reach   ] . .     one hash table for a step; it moves with the steps
    RN     . . . . . . . . [step][step][step] . . . . . . . .        a slice: each of its rows is looked up once

Slices are independent. Each reports which of its rows of RN are resolved: those whose key was found. Repeated keys of
R1 were detected before (`repeated`) and are not probed at all. Rows that are not resolved are left to an ordinary join
with all of R1. Whether a row is resolved depends only on the plan, the sizes and the slice, so all passes over a slice
agree, whichever columns they read.

This is Diag-Join with its window in one table instead of a ring (section 3.3): steps are as long as the window, so rows
of R1 are hashed twice and rows of RN are looked up once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import one_batch
from dovetail.columns.taking import take_columns, take_rows
from dovetail.condition import matching
from dovetail.core.rows import Matches, Rows, Side
from dovetail.diag.ring import KeyedRows
from dovetail.execution.at_rest import Joining
from dovetail.execution.output import MOST_ROWS
from dovetail.matching.equal_keys import HashKeys
from dovetail.planning.plan import Diagonal, JoinPlan
from dovetail.planning.statistics import read_columns
from dovetail.sources.parquet_files import ParquetRows
from dovetail.storage.hash_table import Hashes, HashTable

LEAST_STEP = 1 << 15  # rows of RN
BATCH_BYTES = 1 << 22  # read at once: small enough that what Spark turns into rows stays in its cache

Bits = NDArray[np.uint8]


class Range(NamedTuple):
    """Positions [start, stop)."""

    start: int
    stop: int


def cut_slices(many: ParquetRows, wanted: int) -> list[Range]:
    """Cut RN into about the given number of slices."""
    return [Range(*part) for part in many.cut(wanted)]


@dataclass(frozen=True, slots=True)
class Sliced:
    """What all slices of a join share."""

    plan: JoinPlan
    scans: tuple[ParquetRows, ParquetRows]
    output: pa.Schema
    slices: tuple[Range, ...]
    repeated: Hashes  # hashes of keys that repeat in R1, or seem to; sorted

    @property
    def window(self) -> Diagonal:
        assert self.plan.diagonal is not None
        return self.plan.diagonal

    @property
    def one(self) -> Side:
        return self.window.one

    @property
    def many(self) -> Side:
        return self.one.other

    def asks(self, side: Side) -> bool:
        """Whether the join type depends on which rows of the side have a partner."""
        return side in self.plan.how.tracked

    def owned_rows(self, part: Range) -> Range:
        """The rows of R1 that belong to this slice alone."""
        ones, many = self.scans[self.one].rows, self.scans[self.many].rows
        return Range(part.start * ones // many, part.stop * ones // many)

    def window_rows(self, step: Range) -> Range:
        """The rows of R1 in which rows of a step look for partners."""
        ones, reach = self.scans[self.one].rows, max(1, self.window.tables // 2 * self.window.table_rows)
        owned = self.owned_rows(step)
        return Range(max(0, owned.start - reach), min(ones, owned.stop + 1 + reach))

    def slice_rows(self, part: Range) -> Range:
        """The rows of R1 that a slice reads."""
        steps = self.steps(part)
        return Range(self.window_rows(steps[0]).start, self.window_rows(steps[-1]).stop)

    def steps(self, part: Range) -> list[Range]:
        ones, many = self.scans[self.one].rows, self.scans[self.many].rows
        rows = max(LEAST_STEP, self.window.tables * self.window.table_rows * many // max(1, ones))
        return [Range(start, min(part.stop, start + rows)) for start in range(part.start, part.stop, rows)]


class Looked(NamedTuple):
    """Rows of RN that were looked up."""

    batch: pa.RecordBatch  # all rows, including those without a key
    keyed: Rows | None  # the rows with a key; None: all of them
    resolved: NDArray[np.bool_]  # whether each keyed row was found
    ones: Rows  # for each row found, its row in the window
    window: KeyedRows

    def rows(self, keyed: Rows) -> Rows:
        """Convert numbers of keyed rows to rows of the batch."""
        return keyed if self.keyed is None else self.keyed[keyed]


class Survey(NamedTuple):
    """The result of a pass over the keys of a slice."""

    left_over: int
    hashes: Hashes  # hashes of the rows of R1 that it owns
    low: int
    partnered: Bits  # a bit for each row of R1 from `low` on: whether it has a partner in this slice


class SliceJoin:
    """The join of one slice, with all columns or only those that the condition reads."""

    def __init__(self, sliced: Sliced, part: Range) -> None:
        self._sliced, self._part = sliced, part
        condition, one = sliced.plan.condition, sliced.one
        self._keys = HashKeys(condition)
        # Filtered rows of R1 are also found: a row that probes for one is resolved, without a partner.
        self._all_keys = HashKeys(replace(condition, filters=((), ())))
        self._checks = (*self._keys.checks, *condition.filters[one])
        self._work = Joining(sliced.plan.condition, sliced.plan.how, sliced.output)

    def results(self) -> Iterator[pa.RecordBatch]:
        """Pairs of resolved rows, and the resolved rows of RN that the join type emits alone."""
        lists, asks = self._sliced.plan.how.emits_pairs, self._sliced.asks(self._sliced.many)
        for looked in self._probe_steps(all_columns=True):
            many, ones = self._check_pairs(looked)
            if lists and len(many):
                yield self._combine_rows(looked, many, ones)
            if asks:
                partnered = np.zeros(looked.batch.num_rows, np.bool_)
                partnered[many] = True
                decided = np.ones(looked.batch.num_rows, np.bool_)
                decided[looked.rows(np.flatnonzero(~looked.resolved))] = False
                chosen = np.flatnonzero(decided)
                yield from self._work.leave(self._sliced.many, take_rows(looked.batch, chosen), partnered[chosen])

    def left_over(self) -> Iterator[pa.RecordBatch]:
        """The rows of RN that are not resolved."""
        for looked in self._probe_steps(all_columns=True):
            rows = looked.rows(np.flatnonzero(~looked.resolved))
            if len(rows):
                yield take_rows(looked.batch, rows)

    def survey(self) -> Survey:
        left_over = 0
        asks, (low, high) = self._sliced.asks(self._sliced.one), self._sliced.slice_rows(self._part)
        partnered = np.zeros(high - low if asks else 0, np.bool_)
        noted: list[Hashes] = []
        for looked in self._probe_steps(all_columns=False, noted=noted):
            left_over += int((~looked.resolved).sum())
            if asks:
                _, ones = self._check_pairs(looked)
                partnered[looked.window.positions[ones] - low] = True
        known = np.flatnonzero(partnered)
        bits = np.packbits(partnered[: known[-1] + 1 if len(known) else 0])
        return Survey(left_over, np.concatenate([np.empty(0, np.int64), *noted]), low, bits)

    def _check_pairs(self, looked: Looked) -> tuple[Rows, Rows]:
        """The rows of RN and of the window that satisfy the whole condition."""
        many, ones = looked.rows(np.flatnonzero(looked.resolved)), looked.ones
        if not self._checks or not len(many):
            return many, ones
        pairs = Matches.oriented(self._sliced.many, looked.batch, many, looked.window.batch, ones)
        chosen = matching(self._checks, pairs.left, pairs.left_rows, pairs.right, pairs.right_rows)
        return many[chosen], ones[chosen]

    def _combine_rows(self, looked: Looked, many: Rows, ones: Rows) -> pa.RecordBatch:
        """Join columns of both sides. Rows of RN are not copied if all of them have a partner."""
        whole = len(many) == looked.batch.num_rows
        mine = looked.batch.columns if whole else take_columns(looked.batch, many)
        theirs = take_columns(looked.window.batch, ones)
        columns = mine + theirs if self._sliced.many is Side.LEFT else theirs + mine
        return pa.RecordBatch.from_arrays(columns, schema=self._sliced.output)

    def _probe_steps(self, all_columns: bool, noted: list[Hashes] | None = None) -> Iterator[Looked]:
        sliced = self._sliced
        scan, condition = sliced.scans[sliced.many], sliced.plan.condition
        columns = None if all_columns else read_columns(condition, sliced.many)
        steps = sliced.steps(self._part)
        window = _Window(self._ones(all_columns, noted))
        number = -1
        for position, batch in scan.places(_batch_rows(scan), columns, self._part.start, self._part.stop):
            start = position
            while start < position + batch.num_rows:
                if number < 0 or start >= steps[number].stop:
                    number += 1
                    window.move(sliced.window_rows(steps[number]))
                stop = min(steps[number].stop, position + batch.num_rows)
                yield self._look_up(batch.slice(start - position, stop - start), window)
                start = stop

    def _look_up(self, batch: pa.RecordBatch, window: _Window) -> Looked:
        rows, hashes = self._keys.hash(self._sliced.many, batch)
        partner = np.full(len(hashes), -1)
        for probing, mine in window.index.find(hashes, len(hashes)):
            partner[probing] = mine
        if len(self._sliced.repeated):
            partner[np.isin(hashes, self._sliced.repeated)] = -1
        resolved = partner >= 0
        return Looked(batch, rows, resolved, partner[resolved], window.keyed)

    def _ones(self, all_columns: bool, noted: list[Hashes] | None) -> Iterator[KeyedRows]:
        """Rows of R1 around the slice that have a key; the hashes of owned rows are noted."""
        side = self._sliced.one
        scan, owned = self._sliced.scans[side], self._sliced.owned_rows(self._part)
        columns = None if all_columns else read_columns(self._sliced.plan.condition, side)
        for position, batch in scan.places(_batch_rows(scan), columns, *self._sliced.slice_rows(self._part)):
            rows, hashes = self._all_keys.hash(side, batch)
            positions = position + (np.arange(batch.num_rows) if rows is None else rows)
            if noted is not None:
                noted.append(hashes[(positions >= owned.start) & (positions < owned.stop)])
            yield KeyedRows(batch if rows is None else take_rows(batch, rows), hashes, positions)


class _Window:
    """Rows of R1 in a range that moves forward, and an index of their keys."""

    def __init__(self, read: Iterator[KeyedRows]) -> None:
        self._read = read
        self._ahead: KeyedRows | None = None  # read, but only partly in the range
        self.keyed: KeyedRows
        self.index = HashTable()

    def move(self, to: Range) -> None:
        """Read up to the end of the range; the last range ends at the end of the input."""
        pieces = [] if self._ahead is None else [self._cut(self._ahead, to.start)]
        while not pieces or not len(pieces[-1].positions) or pieces[-1].positions[-1] < to.stop:
            piece = next(self._read, None)
            if piece is None:
                break
            pieces.append(self._cut(piece, to.start))
        if pieces:
            batch = one_batch([piece.batch for piece in pieces], pieces[0].batch.schema)
            hashes, positions = (np.concatenate([piece[i] for piece in pieces]) for i in (1, 2))
            self._ahead = KeyedRows(batch, hashes, positions)
        assert self._ahead is not None
        self.keyed = self._ahead.slice(0, int(np.searchsorted(self._ahead.positions, to.stop)))
        self.index = HashTable()
        self.index.insert(self.keyed.hashes)

    def _cut(self, piece: KeyedRows, start: int) -> KeyedRows:
        return piece.slice(int(np.searchsorted(piece.positions, start)), len(piece.positions))


def _batch_rows(scan: ParquetRows) -> int:
    width = scan.total_bytes() // max(1, scan.rows)
    return max(1024, min(MOST_ROWS, BATCH_BYTES // max(1, width)))
