"""The driver: events in, phases run, results out.

    arrival ----> operator.arrive      (phase arriving)
    stall ------> operator.react       (phase reactive), as many units of work as the stall lasts
    both ended -> operator.clean_up    (phase cleanup)

It is the same in process, in simulation and inside a Spark task; only the events differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from dovetail.batch import Arrival, End, Event, Phase, Results, Side, Stall, Watermark, slices
from dovetail.errors import BudgetError, InputError
from dovetail.operators.protocol import JoinOperator, Workspace
from dovetail.state.budget import BUFFER, Budget


class Found(NamedTuple):
    """Results and the phase they were found in."""

    phase: Phase
    results: Results


class Driver:
    """Runs one operator from event to event."""

    def __init__(self, operator: JoinOperator, workspace: Workspace, ended: tuple[bool, bool] = (False, False)) -> None:
        self.operator = operator
        self._workspace = workspace
        self._ended = {side: ended[side] for side in Side}

    @property
    def ended(self) -> tuple[bool, bool]:
        return self._ended[Side.LEFT], self._ended[Side.RIGHT]

    def restarted(self, operator: JoinOperator, workspace: Workspace) -> Driver:
        """A driver that goes on where this one is, with an operator restored from a snapshot."""
        return Driver(operator, workspace, self.ended)

    def run(self, events: Iterable[Event]) -> Iterator[Found]:
        """Everything that the events lead to. Sides that do not end by an event end after the last one."""
        for event in events:
            yield from self.handle(event)
        for side in Side:
            if not self._ended[side]:
                yield from self.handle(End(side))

    def handle(self, event: Event) -> Iterator[Found]:
        match event:
            case Arrival(side, batch):
                yield from self._arrive(side, batch)
            case Stall(steps, over):
                yield from self._react(steps, over)
            case Watermark(value):
                yield from self._found(Phase.ARRIVING, self.operator.expire(value))
            case End(side):
                self._ended[side] = True
                self.operator.end(side)
                if all(self._ended.values()):
                    yield from self._found(Phase.CLEANUP, self.operator.clean_up())

    def _arrive(self, side: Side, batch: pa.RecordBatch) -> Iterator[Found]:
        if self._ended[side]:
            raise InputError(f"rows arrived on the {side.name.lower()} side after its end.")
        counters, budget = self._workspace.counters, self._workspace.budget
        for piece in slices(batch, self._piece_rows(batch)):
            counters.rows_received += piece.num_rows
            counters.peak_buffer_rows = max(counters.peak_buffer_rows, piece.num_rows)
            try:
                budget.hold(BUFFER, piece.num_rows, 0 if budget.limit is None else piece.nbytes)
                yield from self._found(Phase.ARRIVING, self.operator.arrive(side, piece))
            except BudgetError as error:
                raise self._explained(error) from None
            budget.release(BUFFER)

    def _explained(self, error: BudgetError) -> BudgetError:
        if self.operator.spills:
            return error
        return BudgetError(
            f"{error} {self.operator.name} does not spill: it keeps both inputs in memory until one of them ends. "
            "Give it more memory, or choose an algorithm that spills, such as algorithm='nested_loop'."
        )

    def _react(self, steps: int | None, over: Callable[[], bool] | None) -> Iterator[Found]:
        for found in islice(self._found(Phase.REACTIVE, self.operator.react()), steps):
            yield found
            del found
            if over is not None and over():
                break

    def _found(self, phase: Phase, work: Iterator[Results]) -> Iterator[Found]:
        """Results are let go before more are asked for: they may be all that keeps rows in memory that have left."""
        return map(partial(self._count, phase), work)

    def _count(self, phase: Phase, results: Results) -> Found:
        self._workspace.counters.results += results.size
        return Found(phase, results)

    def _piece_rows(self, batch: pa.RecordBatch) -> int:
        return rows_per_piece(batch, self._workspace.budget, self._workspace.block_rows)


def rows_per_piece(batch: pa.RecordBatch, budget: Budget, block_rows: int) -> int:
    """How many rows of the batch may arrive at once, so that the input buffer keeps to its share of the budget."""
    if budget.limit is None or budget.unit == "rows":
        return block_rows
    bytes_per_row: int = max(1, batch.nbytes // max(1, batch.num_rows))
    return max(1, min(block_rows, budget.limit // 32 // bytes_per_row))
