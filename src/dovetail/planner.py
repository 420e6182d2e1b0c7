"""From a condition to a plan: which operator, which router, and why."""

from __future__ import annotations

from dovetail.condition import Condition, describe
from dovetail.errors import InputError, PlanError
from dovetail.operators import operator_class
from dovetail.plan import Choice, JoinPlan
from dovetail.state.budget import Budget, Shares

HOW = {
    "inner": "inner",
    **dict.fromkeys(["left", "leftouter", "left_outer"], "left"),
    **dict.fromkeys(["right", "rightouter", "right_outer"], "right"),
    **dict.fromkeys(["full", "outer", "fullouter", "full_outer"], "full"),
    **dict.fromkeys(["semi", "leftsemi", "left_semi"], "left_semi"),
    **dict.fromkeys(["anti", "leftanti", "left_anti"], "left_anti"),
}
"""Spark's names of join types, with their aliases."""

NESTED_LOOP_ADVICE = (
    "every row is compared with every row of the other side: an equality that both rows satisfy "
    "(l.key = r.key AND …) would let them meet by hash"
)


def join_type(how: str) -> str:
    """The join type by its main name."""
    found = HOW.get(str(how).lower())
    if found is None:
        raise InputError(f"how must be one of {', '.join(sorted(set(HOW.values())))}; got {how!r}.")
    return found


def plan_join(
    condition: Condition, how: str = "inner", *, algorithm: str = "auto", memory_bytes: int | None = None
) -> JoinPlan:
    """The plan of a join in one cell."""
    how = join_type(how)
    if how != "inner":
        raise PlanError(f"how={how!r} is not available yet; inner is.")
    operator = _operator(condition, algorithm)
    Shares(Budget(memory_bytes), block_rows=1)  # refuses a budget that is too small, before any work
    advice = (NESTED_LOOP_ADVICE,) if operator.name == "nested_loop" and algorithm == "auto" else ()
    return JoinPlan(condition, how, operator, memory_bytes=memory_bytes, advice=advice)


def _operator(condition: Condition, algorithm: str) -> Choice:
    if algorithm != "auto":
        refusal = operator_class(algorithm).refuses(condition)
        if refusal is not None:
            raise PlanError(f"algorithm={algorithm!r} cannot run {condition.text}: {refusal}.")
        return Choice(algorithm, "asked for")
    if condition.equalities:
        keys = " AND ".join(describe(p) for p in condition.equalities)
        return Choice("shj", f"symmetric hash join on {keys}")
    return Choice("nested_loop", "no equality to hash on")
