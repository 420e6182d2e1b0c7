"""The driver of joins of several inputs: events in, phases run, results out. As `driver.py`, with aliases for sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dovetail.core.rows import ArrivalOf, EndOf, MultiEvent, Stall, Tuples
from dovetail.execution.driver import Found, Phases
from dovetail.operators.multi import MultiOperator, MultiWorkspace
from dovetail.operators.registry import multi_operator_class


class MultiDriver(Phases[str, Tuples]):
    """Runs one operator from event to event."""

    operator: MultiOperator
    _workspace: MultiWorkspace

    def __init__(self, operator: MultiOperator, workspace: MultiWorkspace, ended: Sequence[bool] = ()) -> None:
        aliases = workspace.graph.aliases
        super().__init__(operator, workspace, dict(zip(aliases, ended or [False] * len(aliases), strict=True)))

    def restarted(self, operator: MultiOperator, workspace: MultiWorkspace) -> MultiDriver:
        """A driver that goes on where this one is, with an operator restored from a snapshot."""
        return MultiDriver(operator, workspace, list(self._ended.values()))

    def run(self, events: Iterable[MultiEvent]) -> Iterator[Found[Tuples]]:
        """Everything that the events lead to. Inputs that do not end by an event end after the last one."""
        for event in events:
            yield from self.handle(event)
        for alias, ended in list(self._ended.items()):
            if not ended:
                yield from self.handle(EndOf(alias))

    def handle(self, event: MultiEvent) -> Iterator[Found[Tuples]]:
        match event:
            case ArrivalOf(alias, batch):
                return self._arrive(alias, batch)
            case Stall(steps, over):
                return self._react(steps, over)
            case EndOf(alias):
                return self._end(alias)

    def _spilling(self) -> str | None:
        names = (name for name in ("miner", "pmj") if multi_operator_class(name).refuses(self._workspace.graph) is None)
        return next(names, None)
