"""Hash: rows with equal keys share a cell; a key too heavy for one cell is split over several.

For a heavy key the side with more rows of it is distributed over the key's cells, and the other side is replicated to
all of them, so that a pair still shares exactly one cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import Condition
from dovetail.core.rows import Rows, Side
from dovetail.matching.hash_keys import HashKeys
from dovetail.routing.protocol import Spread, Visits


class Heavy(NamedTuple):
    """A key that is split: which side is dealt out, and over how many cells."""

    side: Side
    parts: int


FEWEST = 20  # times a key must be in a sample to be believed heavy


@dataclass(frozen=True, slots=True)
class HashRouter:
    condition: Condition
    cells: int
    heavy: Mapping[int, Heavy] = field(default_factory=dict)  # by hash

    @property
    def needs_spread(self) -> bool:
        return bool(self.heavy)

    def route(self, side: Side, batch: pa.RecordBatch, spread: Spread) -> Visits:
        rows, hashes = HashKeys(self.condition).hash(side, batch)
        if rows is None:
            rows = np.arange(batch.num_rows)
        home = home_cells(hashes, self.cells)
        if not self.heavy:
            return Visits(rows, home)
        light = ~np.isin(hashes, np.fromiter(self.heavy, np.int64))
        visits = [Visits(rows[light], home[light])]
        for key, heavy in self.heavy.items():
            mine = np.flatnonzero(hashes == key)
            if len(mine):
                visits.append(self._split(side, heavy, rows[mine], home[mine], spread))
        return Visits(np.concatenate([v.rows for v in visits]), np.concatenate([v.cells for v in visits]))

    def _split(self, side: Side, heavy: Heavy, rows: Rows, home: NDArray[np.int32], spread: Spread) -> Visits:
        if side is heavy.side:
            return Visits(rows, ((home + spread[rows] % heavy.parts) % self.cells).astype(np.int32))
        copies = np.arange(heavy.parts)
        cells = (home[:, None] + copies) % self.cells
        return Visits(np.repeat(rows, heavy.parts), cells.astype(np.int32).ravel())


def home_cells(hashes: NDArray[np.int64], cells: int) -> NDArray[np.int32]:
    """The cell of each hash. High bits, because the low ones choose the slot of the hash table in the cell."""
    return ((hashes.view(np.uint64) >> np.uint64(32)) % np.uint64(cells)).astype(np.int32)


def heavy_keys(
    condition: Condition, samples: Sequence[tuple[pa.RecordBatch, float]], cells: int, unique: Side | None = None
) -> dict[int, Heavy]:
    """Keys with more rows than half a cell should have, by samples and what each of their rows stands for.

    Rows of side `unique` may visit one cell only: it is the one that is dealt out.
    """
    counts = [_frequent(condition, side, *samples[side]) for side in Side]
    fair = max(1.0, sum(batch.num_rows * weight for batch, weight in samples) / cells)
    heavy = {}
    for key in sorted(counts[0].keys() | counts[1].keys()):
        rows = [count.get(key, 0.0) for count in counts]
        parts = min(cells, round(2 * sum(rows) / fair))
        if parts > 1:
            larger = Side.LEFT if rows[0] >= rows[1] else Side.RIGHT
            heavy[key] = Heavy(larger if unique is None else unique, parts)
    return heavy


def _frequent(condition: Condition, side: Side, batch: pa.RecordBatch, weight: float) -> dict[int, float]:
    """Estimated rows by hash, of keys that are often in the sample."""
    hashes, times = np.unique(HashKeys(condition).hash(side, batch).hashes, return_counts=True)
    often = times >= FEWEST
    return dict(zip(hashes[often].tolist(), (times[often] * weight).tolist(), strict=True))
