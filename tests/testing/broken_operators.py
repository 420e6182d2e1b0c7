"""Operators with one fault each that the conformance check must find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dovetail.core.join_types import JoinType
from dovetail.core.rows import Matches, Side
from dovetail.operators.multiway.miner import Miner
from dovetail.operators.pmj.pmj import Pmj
from dovetail.operators.protocol import INNER, Manifest, OperatorSpec


class LosesARow(Miner):
    """Omits the first result of each arrival."""

    def arrive(self, number: int, batch: pa.RecordBatch) -> Iterator[Matches]:
        for found in super().arrive(number, batch):
            yield found.only(np.arange(found.size) > 0)


class DoublesARow(Miner):
    """Yields the first result of each arrival twice."""

    def arrive(self, number: int, batch: pa.RecordBatch) -> Iterator[Matches]:
        for found in super().arrive(number, batch):
            yield found
            yield found.only(np.arange(found.size) < 1)


class EmitsAnOuterRow(Miner):
    """An inner join that emits the first row of each batch without a partner."""

    def arrive(self, number: int, batch: pa.RecordBatch) -> Iterator[Matches]:
        yield from super().arrive(number, batch)
        inputs = range(len(self._state.graph.aliases))
        first = np.arange(min(1, batch.num_rows))
        yield Matches(
            tuple(batch if n == number else None for n in inputs), tuple(first if n == number else None for n in inputs)
        )


class LosesRowsAtRestore(Miner):
    """Does not restore the residents of the last input."""

    def restore(self, manifest: Manifest) -> None:
        super().restore(manifest)
        residents = list(self._state.residents.values())[-1]
        residents.remove(np.arange(len(residents)))


class PadsTheWrongSide(Pmj):
    """Omits left rows without a partner from a full join."""

    spec: ClassVar[OperatorSpec] = replace(Pmj.spec, join_types=(*INNER, JoinType.FULL))

    def clean_up(self) -> Iterator[Matches]:
        return (found for found in super().clean_up() if found.is_complete or found.rows[Side.LEFT] is None)


class ExceedsItsBudget(Miner):
    """Never evicts."""

    def __init__(self, workspace: Any) -> None:
        super().__init__(workspace)
        self._state.free_memory = lambda alias, arriving: None  # type: ignore[method-assign]


class NamesNoSegments(Miner):
    """Its manifest does not name segments, so another process would not find its blocks."""

    def snapshot(self) -> Manifest:
        return replace(super().snapshot(), segments=())


class CountsNoSnapshots(Miner):
    """Gives its second snapshot the version of the first."""

    def snapshot(self) -> Manifest:
        return replace(super().snapshot(), version=1)
