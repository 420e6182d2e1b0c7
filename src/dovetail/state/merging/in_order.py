"""Pairs that a sweep finds in one step, given in the order of the sweep.

A pair belongs where the later of its rows starts. All pairs of a step come before all of the next one, so a step is
sorted by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dovetail.batch import Pairs, take_rows
from dovetail.state.merging.runs import Words


class InOrder:
    def __init__(self) -> None:
        self._pairs: list[Pairs] = []
        self._places: list[Words] = []

    def add(self, pairs: Pairs, left_starts: Words, right_starts: Words) -> None:
        self._pairs.append(pairs)
        self._places.append(np.maximum(left_starts[pairs.left_rows], right_starts[pairs.right_rows]))

    def given(self) -> Iterator[Pairs]:
        if self._pairs:
            left = pa.concat_batches([take_rows(pairs.left, pairs.left_rows) for pairs in self._pairs])
            right = pa.concat_batches([take_rows(pairs.right, pairs.right_rows) for pairs in self._pairs])
            order = np.argsort(np.concatenate(self._places), kind="stable")
            yield Pairs(left, order, right, order)
