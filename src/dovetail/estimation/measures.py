"""Sums of values over pairs, for estimates of aggregates: {"total": "sum(r.amount)", "mean": "avg(l.price)"}."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.condition import evaluate, sides_of
from dovetail.condition.select import Aggregate, parse_aggregates
from dovetail.core.metrics import Estimate
from dovetail.core.rows import Matches, Side
from dovetail.errors import InputError
from dovetail.estimation.estimate import CONFIDENCE, Estimator

Numbers = NDArray[np.float64]
Sums = Mapping[str, float]

BOUNDED = ("count", "sum", "avg")


class Measures:
    def __init__(self, aggregates: Mapping[str, str], schemas: tuple[pa.Schema, pa.Schema]) -> None:
        self._aggregates = parse_aggregates(aggregates, *schemas) if aggregates else ()
        for aggregate in self._aggregates:
            if aggregate.function not in BOUNDED:
                raise InputError(f"{aggregate.text} cannot be estimated; count, sum and avg can.")
        self._seen: dict[str, tuple[pa.RecordBatch, Numbers, Numbers]] = {}

    def __bool__(self) -> bool:
        return bool(self._aggregates)

    @property
    def names(self) -> list[str]:
        return [aggregate.name for aggregate in self._aggregates]

    def sum_pairs(self, pairs: Matches) -> dict[str, float]:
        """The sums over these pairs; for an average also the number of values."""
        return {name: float(values.sum()) for name, values in self.values_of(pairs).items()}

    def values_of(self, pairs: Matches) -> dict[str, Numbers]:
        """The contribution of each pair to each sum. Nulls contribute nothing."""
        found: dict[str, Numbers] = {}
        for aggregate in self._aggregates:
            if aggregate.value is None:
                found[aggregate.name] = np.ones(pairs.size)
                continue
            values, there, rows = self._values(aggregate, pairs)
            found[aggregate.name] = (there if aggregate.function == "count" else values)[rows]
            if aggregate.function == "avg":
                found[_count_of(aggregate)] = there[rows]
        return found

    def estimate_aggregates(self, estimator: Estimator, left_rows: int, right_rows: int) -> dict[str, Estimate | None]:
        """Estimates of the aggregates, from the estimator's blocks."""
        return {
            aggregate.name: estimator.average(aggregate.name, _count_of(aggregate))
            if aggregate.function == "avg"
            else estimator.sum(aggregate.name, left_rows, right_rows)
            for aggregate in self._aggregates
        }

    def exact(self, sums: Sums) -> dict[str, Estimate | None]:
        """The exact aggregates, from the sums over all pairs."""
        found: dict[str, Estimate | None] = {}
        for aggregate in self._aggregates:
            value, count = sums.get(aggregate.name, 0.0), 1.0
            if aggregate.function == "avg":
                count = sums.get(_count_of(aggregate), 0.0)
            found[aggregate.name] = Estimate(*(3 * (value / count,)), CONFIDENCE) if count else None
        return found

    def _values(self, aggregate: Aggregate, pairs: Matches) -> tuple[Numbers, Numbers, NDArray[np.int64]]:
        """The value of each row of a batch, 1 for each row with a value, and the batch's rows in the pairs."""
        assert aggregate.value is not None
        is_left = Side.LEFT in sides_of(aggregate.value)
        batch, rows = (pairs.left, pairs.left_rows) if is_left else (pairs.right, pairs.right_rows)
        seen = self._seen.get(aggregate.name)
        if seen is None or seen[0] is not batch:  # consecutive pairs are often of the same batches
            column = evaluate(aggregate.value, *((batch, None) if is_left else (None, batch)))
            there = np.asarray(column.is_valid()).astype(np.float64)
            values = there if aggregate.function == "count" else np.asarray(column.cast(pa.float64()).fill_null(0.0))
            seen = self._seen[aggregate.name] = (batch, values, there)
        return seen[1], seen[2], rows


def _count_of(aggregate: Aggregate) -> str:
    return f"values of {aggregate.name}"
