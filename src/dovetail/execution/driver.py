"""The driver: events in, phases run, results out.

    arrival ----> operator.arrive      (phase arriving)
    stall ------> operator.react       (phase reactive), as many units of work as the stall lasts
    both ended -> operator.clean_up    (phase cleanup)

It is the same in process, in simulation and inside a Spark task; only the events differ.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, End, Event, Phase, Results, Side, Stall, Watermark, slices
from dovetail.errors import BudgetError, InputError
from dovetail.operators.protocol import JoinOperator, Workspace
from dovetail.planning.planner import spilling_operator
from dovetail.storage.budget import BUFFER, Budget


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=_Sized)
R_co = TypeVar("R_co", bound=_Sized, covariant=True)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)


class Found(NamedTuple, Generic[R]):
    """Results and the phase they were found in."""

    phase: Phase
    results: R


class _Operator(Protocol[K_contra, R_co]):
    name: ClassVar[str]
    spills: ClassVar[bool]

    def arrive(self, key: K_contra, batch: pa.RecordBatch, /) -> Iterator[R_co]: ...
    def end(self, key: K_contra, /) -> None: ...
    def react(self) -> Iterator[R_co]: ...
    def clean_up(self) -> Iterator[R_co]: ...


class _Workspace(Protocol):
    @property
    def budget(self) -> Budget: ...
    @property
    def block_rows(self) -> int: ...
    @property
    def counters(self) -> Counters: ...


class Phases(Generic[K, R]):
    """What an operator does when rows come, when none come, and when there are no more.

    Results are let go before more are asked for: they may be all that keeps rows in memory that have left.
    """

    operator: _Operator[K, R]

    def __init__(self, operator: _Operator[K, R], workspace: _Workspace, ended: Mapping[K, bool]) -> None:
        self.operator = operator
        self._workspace = workspace
        self._ended = dict(ended)

    def _arrive(self, key: K, batch: pa.RecordBatch) -> Iterator[Found[R]]:
        if self._ended[key]:
            raise InputError(f"rows of {self._called(key)} arrived after its end.")
        counters, budget = self._workspace.counters, self._workspace.budget
        for piece in slices(batch, rows_per_piece(batch, budget, self._workspace.block_rows)):
            counters.rows_received += piece.num_rows
            counters.peak_buffer_rows = max(counters.peak_buffer_rows, piece.num_rows)
            try:
                budget.hold(BUFFER, piece.num_rows, 0 if budget.limit is None else piece.nbytes)
                yield from self._found(Phase.ARRIVING, self.operator.arrive(key, piece))
            except BudgetError as error:
                raise self._explained(error) from None
            budget.release(BUFFER)

    def _react(self, steps: int | None, over: Callable[[], bool] | None) -> Iterator[Found[R]]:
        for found in islice(self._found(Phase.REACTIVE, self.operator.react()), steps):
            yield found
            del found
            if over is not None and over():
                break

    def _end(self, key: K) -> Iterator[Found[R]]:
        self._ended[key] = True
        self.operator.end(key)
        if all(self._ended.values()):
            yield from self._found(Phase.CLEANUP, self.operator.clean_up())

    def _found(self, phase: Phase, work: Iterator[R]) -> Iterator[Found[R]]:
        return map(partial(self._count, phase), work)

    def _count(self, phase: Phase, results: R) -> Found[R]:
        self._workspace.counters.results += results.size
        return Found(phase, results)

    def _called(self, key: K) -> str:
        """An input as people call it."""
        return str(key)

    def _explained(self, error: BudgetError) -> BudgetError:
        if self.operator.spills:
            return error
        other = self._spilling()
        instead = "" if other is None else f", or choose an algorithm that spills, such as algorithm={other!r}"
        return BudgetError(
            f"{error} {self.operator.name} does not spill: it keeps all inputs in memory until only one has rows to "
            f"come. Give it more memory{instead}."
        )

    def _spilling(self) -> str | None:
        """An algorithm that can do the same join within any budget; None where there is none."""
        raise NotImplementedError


def rows_per_piece(batch: pa.RecordBatch, budget: Budget, block_rows: int) -> int:
    """How many rows of the batch may arrive at once, so that the input buffer keeps to its share of the budget."""
    if budget.limit is None or budget.unit == "rows":
        return block_rows
    bytes_per_row: int = max(1, batch.nbytes // max(1, batch.num_rows))
    return max(1, min(block_rows, budget.limit // 32 // bytes_per_row))


class Driver(Phases[Side, Results]):
    """Runs one operator from event to event."""

    operator: JoinOperator
    _workspace: Workspace

    def __init__(self, operator: JoinOperator, workspace: Workspace, ended: tuple[bool, bool] = (False, False)) -> None:
        super().__init__(operator, workspace, {side: ended[side] for side in Side})

    @property
    def ended(self) -> tuple[bool, bool]:
        return self._ended[Side.LEFT], self._ended[Side.RIGHT]

    def restarted(self, operator: JoinOperator, workspace: Workspace) -> Driver:
        """A driver that goes on where this one is, with an operator restored from a snapshot."""
        return Driver(operator, workspace, self.ended)

    def run(self, events: Iterable[Event]) -> Iterator[Found[Results]]:
        """Everything that the events lead to. Sides that do not end by an event end after the last one."""
        for event in events:
            yield from self.handle(event)
        for side in Side:
            if not self._ended[side]:
                yield from self.handle(End(side))

    def handle(self, event: Event) -> Iterator[Found[Results]]:
        match event:
            case Arrival(side, batch):
                return self._arrive(side, batch)
            case Stall(steps, over):
                return self._react(steps, over)
            case Watermark(value):
                return self._found(Phase.ARRIVING, self.operator.expire(value))
            case End(side):
                return self._end(side)

    def _called(self, key: Side) -> str:
        return f"the {key.name.lower()} side"

    def _spilling(self) -> str | None:
        return spilling_operator(self._workspace.condition, self._workspace.parameters.get("how", "inner"))
