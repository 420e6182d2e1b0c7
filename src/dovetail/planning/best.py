"""Plans joins of each left row with its best partners."""

from __future__ import annotations

from dovetail.condition import Condition
from dovetail.condition.best import Best
from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.errors import PlanError
from dovetail.matching.best_partners import best_kernel
from dovetail.planning.plan import Choice, JoinPlan

BEST = (JoinType.INNER, JoinType.LEFT)


def plan_best(condition: Condition, how: str, best: Best, memory_bytes: int | None = None) -> JoinPlan:
    """A plan with a kernel that reads the whole right side. Join types without best partners are refused."""
    read = check_best(how)
    return JoinPlan(
        Graph.of(condition),
        read,
        Choice(*best_kernel(condition, best)),
        at_rest=True,
        memory_bytes=memory_bytes,
        best=best,
    )


def check_best(how: str) -> JoinType:
    """The join type, checked to support best partners of left rows."""
    read = JoinType.read(how)
    if read in BEST:
        return read
    if read in (JoinType.LEFT_SEMI, JoinType.LEFT_ANTI):
        raise PlanError(f"how={read!r} asks whether there is a partner, not which is the best: leave out top=.")
    raise PlanError(
        f"how={read!r} has right rows without a left one, and top= chooses partners of left rows. Use how='inner' or "
        "how='left'; exchange the inputs to choose partners of the other side."
    )
