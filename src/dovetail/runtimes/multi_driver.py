"""The driver of joins of several inputs: events in, phases run, results out. As `driver.py`, with aliases for sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from dovetail.batch import Phase, Stall, slices
from dovetail.errors import InputError
from dovetail.operators.multi import MultiOperator, MultiWorkspace
from dovetail.runtimes.driver import rows_per_piece
from dovetail.state.budget import BUFFER
from dovetail.tuples import ArrivalOf, EndOf, MultiEvent, Tuples


class MultiFound(NamedTuple):
    """Results and the phase they were found in."""

    phase: Phase
    results: Tuples


class MultiDriver:
    """Runs one operator from event to event."""

    def __init__(self, operator: MultiOperator, workspace: MultiWorkspace, ended: Sequence[bool] = ()) -> None:
        self.operator = operator
        self._workspace = workspace
        aliases = workspace.graph.aliases
        self._ended = dict(zip(aliases, ended or [False] * len(aliases), strict=True))

    def restarted(self, operator: MultiOperator, workspace: MultiWorkspace) -> MultiDriver:
        """A driver that goes on where this one is, with an operator restored from a snapshot."""
        return MultiDriver(operator, workspace, list(self._ended.values()))

    def run(self, events: Iterable[MultiEvent]) -> Iterator[MultiFound]:
        """Everything that the events lead to. Inputs that do not end by an event end after the last one."""
        for event in events:
            yield from self.handle(event)
        for alias, ended in list(self._ended.items()):
            if not ended:
                yield from self.handle(EndOf(alias))

    def handle(self, event: MultiEvent) -> Iterator[MultiFound]:
        match event:
            case ArrivalOf(alias, batch):
                yield from self._arrive(alias, batch)
            case Stall(steps):
                yield from islice(self._found(Phase.REACTIVE, self.operator.react()), steps)
            case EndOf(alias):
                self._ended[alias] = True
                self.operator.end(alias)
                if all(self._ended.values()):
                    yield from self._found(Phase.CLEANUP, self.operator.clean_up())

    def _arrive(self, alias: str, batch: pa.RecordBatch) -> Iterator[MultiFound]:
        if self._ended[alias]:
            raise InputError(f"rows of {alias} arrived after its end.")
        counters, budget = self._workspace.counters, self._workspace.budget
        for piece in slices(batch, rows_per_piece(batch, budget, self._workspace.block_rows)):
            counters.rows_received += piece.num_rows
            counters.peak_buffer_rows = max(counters.peak_buffer_rows, piece.num_rows)
            budget.hold(BUFFER, piece.num_rows, 0 if budget.limit is None else piece.nbytes)
            yield from self._found(Phase.ARRIVING, self.operator.arrive(alias, piece))
            budget.release(BUFFER)

    def _found(self, phase: Phase, work: Iterator[Tuples]) -> Iterator[MultiFound]:
        """As in the driver of two inputs."""
        return map(partial(self._count, phase), work)

    def _count(self, phase: Phase, results: Tuples) -> MultiFound:
        self._workspace.counters.results += results.size
        return MultiFound(phase, results)
