"""What a cell of a join of streams does: an operator of two inputs or of several, which go by number, and rows out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, ArrivalOf, Results, Side, Tuples
from dovetail.execution.driver import Driver
from dovetail.execution.multi_driver import MultiDriver
from dovetail.execution.multiway import tuple_batches
from dovetail.execution.output import result_batches
from dovetail.operators.multi import MultiWorkspace
from dovetail.operators.protocol import Workspace
from dovetail.operators.registry import multi_operator_class, operator_class
from dovetail.planning.plan import JoinPlan
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

BATCH_ROWS = 1 << 16
LITTLE = 1 << 23  # bytes
FOR_ROWS = 3 / 4
"""Of a cell's memory. The rest is for copies: of rows that come and go, and of those that make room for others."""

Batches = Iterator[pa.RecordBatch]


class Work(ABC):
    """The operator of a cell, from micro-batch to micro-batch.

    What was found is forgotten before more is asked for: it may be all that keeps rows in memory that have left.
    """

    operator: Any  # of two inputs or of several

    def __init__(self, counters: Counters, most_bytes: int) -> None:
        self.counters = counters
        self._most_bytes = most_bytes  # of a batch of results

    @abstractmethod
    def arrive(self, number: int, batch: pa.RecordBatch) -> Batches:
        """Rows of an input."""

    @abstractmethod
    def end(self, number: int) -> None:
        """An input has no more rows."""

    def react(self) -> Iterator[Batches]:
        """Some of the work that is left; one unit at a time, with what it has found."""
        for found in self.operator.react():
            yield self._counted(found)
            del found

    def clean_up(self) -> Batches:
        """All that is missing, once all inputs have ended."""
        for found in self.operator.clean_up():
            yield from self._counted(found)
            del found

    def _counted(self, found: Any) -> Batches:
        self.counters.results += found.size
        return self._rows(found)

    @abstractmethod
    def _rows(self, found: Any) -> Batches:
        """Results as rows of the output."""


class TwoInputs(Work):
    """A plan of two inputs. `drop`: key columns at the end of each that are not part of the result."""

    def __init__(
        self,
        plan: JoinPlan,
        schema: pa.Schema,
        drop: tuple[int, int],
        blocks: BlockStore,
        ended: Sequence[bool],
        most_bytes: int,
    ) -> None:
        super().__init__(Counters(), most_bytes)
        budget = _budget(plan.memory_bytes, self.counters)
        workspace = Workspace(plan.condition, budget, blocks, BATCH_ROWS, self.counters)
        self._schema, self._drop = schema, drop
        self.operator = operator_class(plan.operator.name)(workspace)
        self._driver = Driver(self.operator, workspace, (ended[0], ended[1]))

    def arrive(self, number: int, batch: pa.RecordBatch) -> Batches:
        for _, results in self._driver.handle(Arrival(Side(number), batch)):
            yield from self._rows(results)
            del results

    def end(self, number: int) -> None:
        self.operator.end(Side(number))

    def _rows(self, found: Results) -> Batches:
        return result_batches(found, self._schema, drop=self._drop, most_bytes=self._most_bytes)


class SeveralInputs(Work):
    def __init__(
        self,
        graph: Graph,
        algorithm: str,
        schema: pa.Schema,
        memory_bytes: int | None,
        blocks: BlockStore,
        ended: Sequence[bool],
        most_bytes: int,
    ) -> None:
        super().__init__(Counters(), most_bytes)
        budget = _budget(memory_bytes, self.counters)
        workspace = MultiWorkspace(graph, budget, blocks, BATCH_ROWS, self.counters)
        self._graph, self._schema = graph, schema
        self.operator = multi_operator_class(algorithm)(workspace)
        self._driver = MultiDriver(self.operator, workspace, ended)

    def arrive(self, number: int, batch: pa.RecordBatch) -> Batches:
        for _, tuples in self._driver.handle(ArrivalOf(self._graph.aliases[number], batch)):
            yield from self._rows(tuples)
            del tuples

    def end(self, number: int) -> None:
        self.operator.end(self._graph.aliases[number])

    def _rows(self, found: Tuples) -> Batches:
        return tuple_batches(found, self._graph, self._schema, self._most_bytes)


def _budget(memory_bytes: int | None, counters: Counters) -> Budget:
    """For rows. Of little memory all: operators need some blocks, and copies are small beside the worker itself."""
    if memory_bytes is None:
        return Budget(None, "bytes", counters)
    return Budget(max(int(FOR_ROWS * memory_bytes), min(memory_bytes, LITTLE)), "bytes", counters)
