"""The driver: takes events, runs the operator's phases, returns results.

    arrival ---> operator.arrive      (phase arriving)
    stall -----> operator.react       (phase reactive), as many units of work as the stall lasts
    watermark -> operator.expire      (phase arriving)
    all ended -> operator.clean_up    (phase cleanup)

The same driver runs in process, in simulation and inside a Spark task, for two or more inputs; only the events differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, cast

import pyarrow as pa

from dovetail.columns.batches import row_bytes, slices
from dovetail.core.rows import Arrival, End, Event, Matches, Phase, Side, Stall, Watermark
from dovetail.errors import BudgetError, InputError
from dovetail.operators.protocol import JoinOperator, WindowedOperator, Workspace
from dovetail.planning.operator_choice import Arrivals, choose_operator
from dovetail.storage.budget import BUFFER, Budget


class Found(NamedTuple):
    """Results and the phase in which they were found."""

    phase: Phase
    results: Matches


class Driver:
    """Runs one operator from event to event. `ended`: the inputs that have already ended; by default none.

    References to emitted results are dropped before the next step: they may be the last references to evicted rows.
    """

    def __init__(self, operator: JoinOperator, workspace: Workspace, ended: Sequence[bool] = ()) -> None:
        self.operator = operator
        self._workspace = workspace
        count = len(workspace.graph.aliases)
        self._ended = list(ended) or [False] * count
        self._inputs: Sequence[int] = tuple(Side) if count == len(Side) else range(count)

    @property
    def ended(self) -> tuple[bool, ...]:
        """Which inputs have ended."""
        return tuple(self._ended)

    def restart(self, operator: JoinOperator, workspace: Workspace) -> Driver:
        """A driver that resumes from this one's state, with an operator restored from a snapshot."""
        return Driver(operator, workspace, self.ended)

    def run(self, events: Iterable[Event]) -> Iterator[Found]:
        """The results of all events. Inputs without an End event end after the last event."""
        for event in events:
            yield from self.handle(event)
        for number, ended in enumerate(self.ended):
            if not ended:
                yield from self.handle(End(number))

    def handle(self, event: Event) -> Iterator[Found]:
        """The results of one event."""
        match event:
            case Arrival(number, batch, None):
                return self._arrive(self._inputs[number], batch)
            case Arrival(number, batch, placement):
                placed = cast(WindowedOperator, self.operator).arrive(self._inputs[number], batch, placement)
                return self._take_results(Phase.ARRIVING, placed)
            case Stall(steps, over):
                return self._react(steps, over)
            case Watermark(value, None):
                return self._take_results(Phase.ARRIVING, self.operator.expire(value))
            case Watermark(value, arrived):
                return self._take_results(Phase.ARRIVING, cast(WindowedOperator, self.operator).expire(value, arrived))
            case End(number):
                return self._end(number)

    def end(self, number: int) -> None:
        """End of stream of an input. Once all inputs have ended, `clean_up` emits the remaining results."""
        self._ended[number] = True
        self.operator.end(self._inputs[number])

    def clean_up(self) -> Iterator[Found]:
        """All inputs have ended: emit every missing result."""
        return self._take_results(Phase.CLEANUP, self.operator.clean_up())

    def _arrive(self, number: int, batch: pa.RecordBatch) -> Iterator[Found]:
        if self._ended[number]:
            raise InputError(f"rows of input {self._workspace.graph.aliases[number]!r} arrived after its end.")
        counters, budget = self._workspace.counters, self._workspace.budget
        for piece in slices(batch, rows_per_piece(batch, budget, self._workspace.block_rows)):
            counters.rows_received += piece.num_rows
            counters.peak_buffer_rows = max(counters.peak_buffer_rows, piece.num_rows)
            try:
                budget.hold(BUFFER, piece.num_rows, 0 if budget.limit is None else piece.nbytes)
                yield from self._take_results(Phase.ARRIVING, self.operator.arrive(number, piece))
            except BudgetError as error:
                raise self._explain_budget(error) from None
            budget.release(BUFFER)

    def _react(self, steps: int | None, over: Callable[[], bool] | None) -> Iterator[Found]:
        for found in islice(self._take_results(Phase.REACTIVE, self.operator.react()), steps):
            yield found
            del found
            if over is not None and over():
                break

    def _end(self, number: int) -> Iterator[Found]:
        self.end(number)
        if all(self._ended):
            yield from self.clean_up()

    def _take_results(self, phase: Phase, work: Iterator[Matches]) -> Iterator[Found]:
        return map(partial(self._count, phase), work)

    def _count(self, phase: Phase, results: Matches) -> Found:
        self._workspace.counters.results += results.size
        return Found(phase, results)

    def _explain_budget(self, error: BudgetError) -> BudgetError:
        if self.operator.spec.spills:
            return error
        other = choose_operator(Arrivals(self._workspace.graph, self._workspace.how))
        instead = "" if other is None else f", or choose an algorithm that spills, such as algorithm={other.name!r}"
        return BudgetError(
            f"{error} {self.operator.spec.name} does not spill: it keeps all inputs in memory until only one has rows "
            f"to come. Give it more memory{instead}."
        )


def rows_per_piece(batch: pa.RecordBatch, budget: Budget, block_rows: int) -> int:
    """How many rows of the batch may arrive at once, for the input buffer to stay within its share of the budget."""
    if budget.limit is None or budget.unit == "rows":
        return block_rows
    return max(1, min(block_rows, budget.limit // 32 // row_bytes(batch)))
