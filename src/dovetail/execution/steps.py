"""The steps of a progressive join: new results or aggregates, and an estimate of the total."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from dovetail.core.metrics import Estimate
from dovetail.core.rows import Arrival, End, Event, Matches, Phase, Side, empty_batch
from dovetail.estimation.estimate import CONFIDENCE
from dovetail.estimation.measures import Measures
from dovetail.execution.output import fixed_rows, result_batches
from dovetail.operators.protocol import Workspace
from dovetail.sources.protocol import Source

Rows: TypeAlias = pa.Table | Source


@dataclass(frozen=True, slots=True)
class Step:
    """New results of a progressive join, and how far it is."""

    batch: pa.RecordBatch
    phase: Phase
    results: int  # so far, with this batch
    estimate: Estimate | None  # None while it cannot be honest
    aggregates: Mapping[str, Estimate | None] | None = None  # where they were asked for instead of results
    objection: str | None = None  # why there is no estimate, if it is for the order of the rows
    done: float | None = None  # how much of the work, from 0 to 1, where that is known
    operator: str | None = None  # that found them, where the plan leaves it open,
    reason: str | None = None  # and why this one


@dataclass(slots=True)
class Sizes:
    """How many rows each input has, where that is known: from the start, or when it has ended."""

    rows: list[int | None] = field(default_factory=lambda: [None, None])
    all_came: bool = False

    @classmethod
    def from_inputs(cls, inputs: Iterable[Rows]) -> Sizes:
        """Tables know it, and so do sources with a number of `rows`."""
        return cls([_row_count(rows) for rows in inputs])

    @property
    def of_two(self) -> tuple[int, int] | None:
        """Those of both inputs, if there are two and both are known: what estimates need."""
        known = [count for count in self.rows if count is not None]
        return (known[0], known[1]) if len(known) == len(self.rows) == len(Side) else None

    def watch(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events, while their rows are counted: what came in the end counts, whatever was announced."""
        came = [0] * len(self.rows)
        for event in events:
            match event:
                case Arrival(number, batch):
                    came[number] += batch.num_rows
                    if came[number] > (self.rows[number] or 0):
                        self.rows[number] = None
                    self.all_came = came == self.rows
                case End(number):
                    self.rows[number] = came[number]
            yield event


def _row_count(rows: Rows) -> int | None:
    count = rows.num_rows if isinstance(rows, pa.Table) else getattr(rows, "rows", None)
    return count if isinstance(count, int) and count >= 0 else None


class StepBuilder:
    """Results as steps, each with an estimate of the total."""

    def __init__(self, workspace: Workspace, sizes: Sizes, aggregates: Mapping[str, str], *, pairs_only: bool) -> None:
        self._pairs_only = pairs_only
        self._estimator = workspace.estimator
        self._sizes = sizes
        self.measures = Measures(aggregates, tuple(workspace.graph.schemas.values()))
        self._sums: dict[str, float] = {}
        self._most_rows: int | None = None  # of a batch; 0: by what is in it

    @property
    def all_came(self) -> bool:
        """Whether all rows have arrived, as far as is known."""
        return self._sizes.all_came

    def batches(self, results: Matches, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of results; where aggregates are asked for, none, and the results are added up."""
        if not self.measures:
            if self._most_rows is None:
                self._most_rows = fixed_rows(schema) or 0
            yield from result_batches(results, schema, self._most_rows or None)
        elif results.size and results.is_complete:
            self.add(self.measures.sum_pairs(results))
            yield empty_batch(schema)

    def add(self, sums: Mapping[str, float]) -> None:
        """Sums over further results."""
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def step(self, batch: pa.RecordBatch, phase: Phase, results: int) -> Step:
        estimate, sizes = self.estimate_results(results), self._sizes.of_two
        objection = self._estimator.objection if estimate is None and sizes is not None else None
        aggregates: Mapping[str, Estimate | None] | None = None
        if self.measures and sizes is not None:
            aggregates = self.measures.estimate_aggregates(self._estimator, *sizes)
        elif self.measures:
            aggregates = dict.fromkeys(self.measures.names)
        return Step(batch, phase, results, estimate, aggregates, objection)

    def last(self, step: Step | None, schema: pa.Schema, results: int) -> Step:
        """All is known. Without results there is a step for the aggregates only."""
        if step is None:
            step = Step(empty_batch(schema), Phase.CLEANUP, results, None)
        estimate = Estimate(results, results, results, CONFIDENCE) if self._pairs_only else None
        if not self.measures:
            return replace(step, estimate=estimate)
        return replace(step, estimate=estimate, aggregates=self.measures.exact(self._sums))

    def estimate_results(self, results: int) -> Estimate | None:
        """What is known of the total: it is no less than what there is already."""
        sizes = self._sizes.of_two
        estimate = None if sizes is None else self._estimator.estimate(*sizes)
        if estimate is None:
            return None
        total, low, high, confidence = estimate
        return Estimate(max(total, results), max(low, results), max(high, results), confidence)
