"""Results and events of joins of several inputs, which go by their aliases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.batch import Rows, Stall, empty_batch


class Tuples(NamedTuple):
    """Matching rows by position: the i-th result has row `rows[alias][i]` of `batches[alias]` for every alias."""

    batches: Mapping[str, pa.RecordBatch]
    rows: Mapping[str, Rows]

    @property
    def size(self) -> int:
        return len(next(iter(self.rows.values())))

    @classmethod
    def none(cls, schemas: Mapping[str, pa.Schema]) -> Tuples:
        """No results: what a unit of work yields when it found nothing."""
        batches = {alias: empty_batch(schema) for alias, schema in schemas.items()}
        return cls(batches, {alias: np.empty(0, np.int64) for alias in schemas})


@dataclass(frozen=True, slots=True)
class ArrivalOf:
    """Rows of the input of that alias."""

    alias: str
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class EndOf:
    alias: str


MultiEvent = ArrivalOf | EndOf | Stall
