"""Chooses the operator for arriving inputs: one table, for progressive joins, for streams, and for hints.

The first row is taken whose needs are met, and whose operator supports the join type and the number of inputs, does not
refuse the condition, and does not hold results until an end that never comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.operators.registry import find_operator, operator_class, operator_names, operator_spec
from dovetail.planning.plan import Choice

Memory = Literal["unlimited", "enough", "scarce"]
"""unlimited: no limit; enough: the inputs certainly fit; scarce: unknown whether they fit."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The facts that the choice depends on."""

    graph: Graph
    how: JoinType = JoinType.INNER
    memory: Memory = "scarce"
    ends: bool = True  # whether the end of the inputs can be detected

    @property
    def has_kernels(self) -> bool:
        """Whether kernels find the candidates, without reading rows from disk for that."""
        condition = self.graph.condition
        # With !=, nearly all pairs match: once rows are on disk, a nested loop reads them less often.
        return bool(condition.alternatives) or (self.memory != "scarce" and condition.finds_candidates)


class Row(NamedTuple):
    """An operator, its needs beyond what it declares, and the reason to choose it."""

    operator: str
    needs: Callable[[Arrivals], bool] = lambda _: True
    why: str = ""


TABLE = (
    Row("shj", lambda a: a.memory == "unlimited", "no limit of memory"),
    Row("shj", lambda a: a.memory == "enough", "both tables fit in memory"),
    Row("shj", lambda a: not a.ends, "no result may wait for an end of the streams"),
    Row("adaptive"),
    Row("miner", lambda a: len(a.graph.aliases) > len(Side)),
    Row("pmj"),
    Row("spo", lambda a: a.how is not JoinType.INNER or a.has_kernels),
    Row("nested_loop", why="nothing to hash on or to order by"),
)


def choose_operator(arrivals: Arrivals) -> Choice | None:
    """The most suitable operator, and why; None if no operator can join the inputs as they arrive."""
    for row in TABLE:
        if _can_run(row.operator, arrivals) and row.needs(arrivals):
            return describe_choice(row.operator, arrivals.graph, row.why)
    return None


def _can_run(name: str, arrivals: Arrivals) -> bool:
    kind = find_operator(name, len(arrivals.graph.aliases))
    return (
        kind is not None
        and arrivals.how in kind.spec.join_types
        and (arrivals.ends or kind.spec.emits_at_arrival)
        and kind.refuses(arrivals.graph) is None
    )


def describe_choice(name: str, graph: Graph, why: str = "") -> Choice:
    """An operator that was chosen automatically, and why."""
    kind = operator_class(name, len(graph.aliases))
    return Choice(name, kind.approach(graph).text + (why and f"; {why}"))


def operators_within_windows() -> tuple[str, ...]:
    """The operators that support windows; the first one is preferred."""
    return tuple(name for name in operator_names() if operator_spec(name).windows)
