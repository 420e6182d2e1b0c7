"""Sums of numbers over pairs, for estimates of aggregates: {"total": "sum(r.amount)", "mean": "avg(l.price)"}."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.batch import Pairs, Side
from dovetail.condition import evaluate, sides_of
from dovetail.condition.aggregates import Aggregate, parse_aggregates
from dovetail.errors import InputError


class Measures:
    def __init__(self, aggregates: Mapping[str, str], schemas: tuple[pa.Schema, pa.Schema]) -> None:
        self._aggregates = parse_aggregates(aggregates, *schemas) if aggregates else ()
        for aggregate in self._aggregates:
            if aggregate.function not in ("sum", "avg"):
                raise InputError(f"{aggregate.text} cannot be estimated; sum and avg can, and count always is.")
        self._seen: dict[str, tuple[pa.RecordBatch, NDArray[np.float64]]] = {}

    def of(self, pairs: Pairs) -> dict[str, float]:
        """The sum of each over these pairs. Nulls count as nothing."""
        return {aggregate.name: self._sum(aggregate, pairs) for aggregate in self._aggregates}

    def _sum(self, aggregate: Aggregate, pairs: Pairs) -> float:
        assert aggregate.value is not None
        is_left = Side.LEFT in sides_of(aggregate.value)
        batch, rows = (pairs.left, pairs.left_rows) if is_left else (pairs.right, pairs.right_rows)
        seen = self._seen.get(aggregate.name)
        if seen is None or seen[0] is not batch:  # pairs of the same batches come one after the other
            values = evaluate(aggregate.value, *((batch, None) if is_left else (None, batch)))
            seen = self._seen[aggregate.name] = (batch, np.asarray(values.cast(pa.float64()).fill_null(0.0)))
        return float(seen[1][rows].sum())
