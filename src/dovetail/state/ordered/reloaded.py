"""Blocks of a side that has ended, in memory again: what still arrives meets them at once.

They come as whole blocks and leave as whole blocks, without being written again. Each stay is noted with the block, so
that the block work knows which pairs they gave.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dovetail.batch import Side
from dovetail.state.budget import Budget
from dovetail.state.ordered.block_work import BlockWork
from dovetail.state.ordered.keys import OrderKeys
from dovetail.state.ordered.side import OrderedSide
from dovetail.state.residence import Clock


class Reloaded:
    def __init__(self, work: BlockWork, keys: OrderKeys, clock: Clock) -> None:
        self.rows: OrderedSide | None = None
        self._work = work
        self._keys = keys
        self._clock = clock
        self._side = Side.LEFT
        self._numbers: list[int] = []
        self._came = 0

    def load(self, side: Side, rows: OrderedSide, room: int, budget: Budget) -> None:
        """Fill `room` with blocks, those that left last first: they were worth keeping for longest."""
        self._side, self._numbers, self._came = side, [], self._clock.tick()
        self.rows = rows
        for number in reversed(range(len(self._work.spilled[side]))):
            loaded = self._work.load(side, range(number, number + 1))
            batch: pa.RecordBatch = loaded.rows.batch
            needed = budget.measure(rows.rows + batch.num_rows, rows.nbytes + rows.nbytes_for(batch))
            if needed > room:
                break
            rows.insert(batch, self._keys.read(side, batch), loaded.arrived, np.zeros(batch.num_rows, np.int32))
            self._numbers.append(number)

    def drop(self) -> None:
        """Forget them; they are on disk."""
        if self.rows is not None:
            left = self._clock.tick()
            for number in self._numbers:
                self._work.spilled[self._side][number].stays.append((self._came, left))
            self.rows = None
