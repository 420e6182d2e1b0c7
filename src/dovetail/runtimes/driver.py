"""The driver: events in, phases run, results out.

    arrival ----> operator.arrive      (phase arriving)
    stall ------> operator.react       (phase reactive), as many units of work as the stall lasts
    both ended -> operator.clean_up    (phase cleanup)

It is the same in process, in simulation and inside a Spark task; only the events differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dovetail.batch import Arrival, End, Event, Phase, Results, Side, Stall, Watermark
from dovetail.operators.protocol import JoinOperator, Workspace
from dovetail.planner import spilling_operator
from dovetail.runtimes.phases import Found, Phases


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
