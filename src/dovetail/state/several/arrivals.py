"""What has arrived of an input: a uniform sample of its rows by their codes, how often keys came, how many lately."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.state.several.key_counts import BYTES, LINES, KeyCounts
from dovetail.state.several.links import Attribute, Codes
from dovetail.state.several.residents import Batch

DECAY = 0.9  # how much of the past a flush leaves in the rate
CODE_BYTES = 8


class Arrivals:
    """Takes about `nbytes` for each of the attributes, most of them for counters."""

    def __init__(self, attributes: Sequence[Attribute], nbytes: int, rng: np.random.Generator) -> None:
        self._rows = max(FEWEST, nbytes // 4 // CODE_BYTES)
        self._codes = {attribute: np.empty(0, np.int64) for attribute in attributes}
        self.counts = {
            attribute: KeyCounts(max(FEWEST, 3 * nbytes // 4 // (LINES * BYTES))) for attribute in attributes
        }
        self._rng = rng
        self._seen = 0
        self.rate = 0.0  # rows lately, in units that are the same for all inputs

    def __len__(self) -> int:
        return min(self._seen, self._rows)

    def codes(self, attribute: Attribute) -> Codes:
        """Of the sample."""
        return self._codes[attribute]

    def add(self, batch: Batch) -> None:
        for attribute, counts in self.counts.items():
            counts.add(batch.codes(attribute))
        rows, room = len(batch), max(0, min(len(batch), self._rows - self._seen))
        # A reservoir: each row that has come is in it with the same chance (Vitter, 1985).
        late = np.arange(room, rows)
        places = self._rng.integers(0, self._seen + late + 1)
        chosen = np.flatnonzero(places < self._rows)
        for attribute, mine in self._codes.items():
            codes = batch.codes(attribute)
            self._codes[attribute] = mine = np.concatenate([mine, codes[:room]])
            mine[places[chosen]] = codes[late[chosen]]
        self._seen += rows
        self.rate += rows

    def age(self) -> None:
        self.rate *= DECAY


FEWEST = 16  # counters and sampled rows
