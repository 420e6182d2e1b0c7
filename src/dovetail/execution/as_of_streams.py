"""As-of join of two streams: a left row waits until no future right row can be a better partner.

    left rows   --late? drop-->  waiting  --final at the horizon-->  left rows with their partners, or with nulls
    right rows  --late? drop-->  kept     --no longer needed-->      forgotten

The watermarks guarantee that all future rows are at the horizon or later. So a left row is final as soon as no time
from the horizon on can be nearer than its current partner, or within the tolerance:

    backward    l.t < horizon
    forward     its partner < horizon, or l.t + tolerance < horizon
    nearest     l.t + distance of its partner < horizon, or l.t + tolerance < horizon

Only the last right row of each key before the horizon can still be a partner of future left rows; with forward,
none can. Keeping a right row longer changes no result, so segments are only rewritten when they have twice as
many rows as were needed last time. Left rows in segments wait until they are before the horizon; those that linger,
because a better partner may still arrive, are rewritten in each micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.columns.batches import empty_batch, one_batch
from dovetail.columns.taking import take_rows
from dovetail.condition import Condition, closed_bounds, keyed_rows
from dovetail.condition.best import Best
from dovetail.core.rows import Rows, Side
from dovetail.matching.best_partners import NO_ROW, best_partners
from dovetail.matching.key_numbers import number_keys
from dovetail.matching.nearest_in_order import Direction, InOrder
from dovetail.matching.preparation import read_operands
from dovetail.matching.window_positions import LEAST, event_times
from dovetail.operators.protocol import Manifest, Usage
from dovetail.storage.blocks import Block, BlockStore

Flags = NDArray[np.bool_]
Words = NDArray[np.int64]

NEVER = -(2**62)  # the horizon before the first watermark
MOST_SEGMENTS = 32  # per side; beyond that they are merged
FEW_ROWS = 1 << 12  # right rows; below that, counting the needed ones is not worth it
FAR = 2**62  # microseconds; larger than any partner's distance
STEMS = ("l", "r")


@dataclass(frozen=True, slots=True)
class AsOf:
    """What is joined: the condition, the order of partners, and the event time columns, in microseconds."""

    condition: Condition
    best: Best
    order: InOrder
    times: tuple[str, str]

    @property
    def direction(self) -> Direction:
        return self.order.direction

    @property
    def tolerance(self) -> int | None:
        """The maximal distance of a partner."""
        if self.order.band is None:
            return None
        low, high = closed_bounds(self.order.band)
        bound = -low if self.direction == "after" else high
        return int(bound)


class Paired(NamedTuple):
    """Left rows that are final, and the right row that is the partner of each, or NO_ROW."""

    left: pa.RecordBatch
    right: pa.RecordBatch
    partners: Rows


@dataclass(slots=True)
class _Side:
    """The rows of a side: segments, and rows that have just arrived."""

    blocks: list[Block] = field(default_factory=list)
    fresh: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks) + sum(int(batch.num_rows) for batch in self.fresh)


class AsOfStreams:
    """The state of one cell. In a micro-batch, rows of both sides arrive, then the horizon advances."""

    def __init__(self, asof: AsOf, blocks: BlockStore) -> None:
        self._asof = asof
        self._store = blocks
        self._sides = (_Side(), _Side())
        self._lingering: list[Block] = []  # left rows before the horizon that still wait
        self._alone: list[pa.RecordBatch] = []  # left rows that can have no partner
        self._needed = 0  # right rows needed, when they were last counted
        self._version = 0
        self._horizon = NEVER
        self.late = self.forgotten = 0

    # During a micro-batch.

    def arrive(self, side: Side, batch: pa.RecordBatch) -> None:
        """Add new rows. Those before the horizon are late."""
        times = self._times(side, batch)
        late = (times < self._horizon) & (times != LEAST)
        self.late += int(late.sum())
        able = self._able(side, batch)
        if side is Side.LEFT:
            self._alone.append(_filtered(batch, ~able & ~late))
        self._sides[side].fresh.append(_filtered(batch, able & ~late))

    def advance(self, horizon: int) -> Iterator[Paired]:
        """Move the horizon: no future row is before it. Returns the left rows that are now final."""
        alone, self._alone = one_batch(self._alone, self._schema(Side.LEFT)), []
        if alone.num_rows:
            yield Paired(alone, empty_batch(self._schema(Side.RIGHT)), np.full(alone.num_rows, NO_ROW))
        if horizon <= self._horizon:
            return
        before, self._horizon = self._horizon, horizon
        due = self._take_due(before)
        needed = np.empty(0, np.int64)  # right rows of lingering left rows
        if due.num_rows:
            rights = self._rights()
            partners = best_partners(self._asof.condition, self._asof.best, due, rights).rights
            final = self._finality(due, rights, partners)
            yield Paired(_filtered(due, final), rights, partners[final])
            lingering = _filtered(due, ~final)
            self._lingering = [self._write(Side.LEFT, lingering, "w")] if lingering.num_rows else []
            needed = partners[~final & (partners != NO_ROW)]
        self._forget(Side.LEFT)
        if self._asof.direction == "after":  # neither future nor waiting left rows can have earlier partners
            self._forget(Side.RIGHT)
        else:
            self._forget_partners(needed)

    def _take_due(self, before: int) -> pa.RecordBatch:
        """Left rows before the horizon. `before`: the last horizon; rows before that were taken already."""
        horizon, side = self._horizon, self._sides[Side.LEFT]
        due = [self._store.read(block) for block in self._lingering]
        for block in side.blocks:
            if block.low is None or block.low < horizon:
                rows = self._store.read(block)
                times = self._times(Side.LEFT, rows)
                due.append(_filtered(rows, (times >= before) & (times < horizon)))
        fresh, side.fresh = one_batch(side.fresh, self._schema(Side.LEFT)), []
        early = self._times(Side.LEFT, fresh) < horizon
        due.append(_filtered(fresh, early))
        side.fresh = [_filtered(fresh, ~early)]
        return one_batch([rows for rows in due if rows.num_rows], self._schema(Side.LEFT))

    def _rights(self) -> pa.RecordBatch:
        """All right rows that can be partners of left rows before the horizon, in the order of arrival."""
        side, until = self._sides[Side.RIGHT], self._horizon if self._asof.direction == "before" else FAR
        old = [self._store.read(block) for block in side.blocks if block.low is None or block.low < until]
        return one_batch([*old, *side.fresh], self._schema(Side.RIGHT))

    def _finality(self, due: pa.RecordBatch, rights: pa.RecordBatch, partners: Rows) -> Flags:
        """Which left rows before the horizon have their final partner."""
        if self._asof.direction == "before":
            return np.ones(due.num_rows, np.bool_)
        times, some = self._times(Side.LEFT, due), partners != NO_ROW
        reach = np.full(due.num_rows, FAR)
        reach[some] = np.abs(times[some] - self._times(Side.RIGHT, rights)[partners[some]])
        if self._asof.tolerance is not None:
            reach = np.minimum(reach, self._asof.tolerance)
        final: Flags = reach < self._horizon - times
        return final

    # State that is kept.

    def _forget(self, which: Side) -> None:
        """Drop rows before the horizon. Expired segments are dropped whole; if many remain, they are merged."""
        side = self._sides[which]
        side.blocks = [block for block in side.blocks if block.high is None or block.high >= self._horizon]
        if len(side.blocks) >= MOST_SEGMENTS:
            rows = one_batch([*map(self._store.read, side.blocks)], self._schema(which))
            self._replace(which, _filtered(rows, self._times(which, rows) >= self._horizon))

    def _forget_partners(self, needed: Rows) -> None:
        """Drop right rows before the horizon, but the last of each key and those `needed` by lingering rows."""
        side = self._sides[Side.RIGHT]
        if side.rows < 2 * self._needed + FEW_ROWS and len(side.blocks) < MOST_SEGMENTS:
            return
        rows = one_batch([*map(self._store.read, side.blocks), *side.fresh], self._schema(Side.RIGHT))
        alive = self._times(Side.RIGHT, rows) >= self._horizon
        alive |= self._last_of_keys(rows)
        alive[needed] = True  # if rows linger, all right rows were read
        self.forgotten += int((~alive).sum())
        self._needed, side.fresh = int(alive.sum()), []
        self._replace(Side.RIGHT, _filtered(rows, alive))

    def _replace(self, which: Side, rows: pa.RecordBatch) -> None:
        self._sides[which].blocks = [self._write(which, rows, STEMS[which])] if rows.num_rows else []

    def _last_of_keys(self, rows: pa.RecordBatch) -> Flags:
        """The last right row of each key before the horizon, if it is within the tolerance of future left rows."""
        asof, times = self._asof, self._times(Side.RIGHT, rows)
        old = times < self._horizon
        if asof.tolerance is not None:
            old &= times >= self._horizon - asof.tolerance
        nobody = empty_batch(self._schema(Side.LEFT))
        equal = asof.condition.strategy.equal_keys
        operands = read_operands(asof.condition, (nobody, rows), equal, [asof.order.values], False)
        numbers, size = np.zeros(len(operands.rows[Side.RIGHT]), np.int32), 1
        if operands.equal is not None:
            keys = number_keys(operands.equal)
            if keys is None:  # different keys have the same code
                return old
            numbers, size = keys.numbers[Side.RIGHT], keys.size
        able = operands.rows[Side.RIGHT]
        chosen = np.flatnonzero(old[able])
        chosen = chosen[np.argsort(times[able[chosen]], kind="stable")]
        last = np.full(size, NO_ROW)
        last[numbers[chosen]] = able[chosen]  # with several rows per key, the last assignment wins
        found = np.zeros(rows.num_rows, np.bool_)
        found[last[last != NO_ROW]] = True
        return found

    # Rows.

    def _schema(self, side: Side) -> pa.Schema:
        return self._asof.condition.schema(side)

    def _times(self, side: Side, rows: pa.RecordBatch) -> Words:
        return event_times(rows.column(self._asof.times[side]))

    def _able(self, side: Side, batch: pa.RecordBatch) -> Flags:
        """Which rows can have a partner."""
        asof = self._asof
        pairs = (*asof.condition.strategy.equal_keys, asof.order.values)
        rows, _ = keyed_rows(asof.condition, side, batch, [pair[side] for pair in pairs])
        able = np.full(batch.num_rows, rows is None)
        if rows is not None:
            able[rows] = True
        return able

    # Between micro-batches.

    @property
    def usage(self) -> Usage:
        blocks = [*self._sides[0].blocks, *self._sides[1].blocks, *self._lingering]
        fresh = [rows for side in self._sides for rows in side.fresh]
        return Usage(
            sum(block.rows for block in blocks) + sum(rows.num_rows for rows in fresh),
            sum(block.nbytes for block in blocks) + sum(rows.nbytes for rows in fresh),
        )

    def snapshot(self) -> Manifest:
        self._version += 1
        for which, side in zip(Side, self._sides, strict=True):
            fresh, side.fresh = one_batch(side.fresh, self._schema(which)), []
            if fresh.num_rows:
                side.blocks.append(self._write(which, fresh, STEMS[which]))
        blocks = {"left": self._sides[0].blocks, "right": self._sides[1].blocks, "lingering": self._lingering}
        state: dict[str, Any] = {"horizon": self._horizon, "needed": self._needed}
        state |= {name: [block.to_json() for block in kept] for name, kept in blocks.items()}
        return Manifest(self._version, state, tuple(block.name for kept in blocks.values() for block in kept))

    def restore(self, manifest: Manifest) -> None:
        self._version, state = manifest.version, manifest.state
        self._horizon, self._needed = int(state["horizon"]), int(state["needed"])
        for side, name in zip(self._sides, ("left", "right"), strict=True):
            side.blocks = [Block.from_json(block) for block in state[name]]
        self._lingering = [Block.from_json(block) for block in state["lingering"]]

    def _write(self, side: Side, rows: pa.RecordBatch, stem: str) -> Block:
        times = self._times(side, rows)
        return self._store.write(rows, stem, (int(times.min()), int(times.max())))


def _filtered(batch: pa.RecordBatch, flags: Flags) -> pa.RecordBatch:
    return batch if flags.all() else take_rows(batch, np.flatnonzero(flags))
