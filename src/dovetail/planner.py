"""From a condition to a plan: which operator, which router, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dovetail.batch import Side
from dovetail.condition import Call, Condition, Distance, Predicate, describe, text_of
from dovetail.errors import InputError, PlanError
from dovetail.matchers import PLANE_AND_SPACE, Drive, choose_drive
from dovetail.matchers.sweep_order import SweepOrder
from dovetail.operators import check_join_type, check_parameters, operator_class
from dovetail.plan import Choice, JoinPlan
from dovetail.state.budget import Budget, Shares
from dovetail.state.ordered.keys import ordering_predicate
from dovetail.statistics import Samples, estimated_pairs
from dovetail.window import Window

HOW = {
    "inner": "inner",
    **dict.fromkeys(["left", "leftouter", "left_outer"], "left"),
    **dict.fromkeys(["right", "rightouter", "right_outer"], "right"),
    **dict.fromkeys(["full", "outer", "fullouter", "full_outer"], "full"),
    **dict.fromkeys(["semi", "leftsemi", "left_semi"], "left_semi"),
    **dict.fromkeys(["anti", "leftanti", "left_anti"], "left_anti"),
}
"""Spark's names of join types, with their aliases."""

KERNELS = {
    "none": ("nested_loop", "nothing to sort or hash by: every pair is a candidate"),
    "one_inequality": ("one_inequality", "both sides sorted; the partners of a row are one end of the other side"),
    "two_inequalities": ("two_inequalities", "sweep over one attribute, look up the other in a set of bits"),
    "band": ("band", "both sides sorted; the partners of a row are neighbours"),
    "two_bands": ("band2d", "each attribute sorted by itself; strips of one are swept along the other"),
    "rectangles": ("rectangles", "strips along y, in each of them a sweep along x"),
    "distance": ("distance", "boxes of the radius around left points visit cells of right points"),
    "similarity": ("similarity", "strips along the principal axes, or all distances by a matrix product"),
    "overlap": ("overlap", "two inequalities between starts and ends"),
    "unequal": ("unequal", "all but the partners by equality"),
}

WINDOWED = ("inner", "left", "left_semi", "left_anti")

NESTED_LOOP_ADVICE = (
    "every row is compared with every row of the other side, because nothing orders or hashes both: "
    "a conjunct such as l.key = r.key, l.x < r.x or abs(l.x - r.x) <= 1 (joined by AND) would avoid that"
)
OR_ADVICE = "one join for each alternative, without what the earlier ones have found, would avoid that"


def join_type(how: str) -> str:
    """The join type by its main name."""
    found = HOW.get(str(how).lower())
    if found is None:
        raise InputError(f"how must be one of {', '.join(sorted(set(HOW.values())))}; got {how!r}.")
    return found


def plan_tables(
    condition: Condition,
    how: str = "inner",
    *,
    algorithm: str = "auto",
    memory_bytes: int | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> JoinPlan:
    """The plan of a join of two tables at rest: the kernel of their class of predicate, or the algorithm asked for."""
    how = join_type(how)
    if algorithm != "auto":
        return plan_operator(condition, how, algorithm=algorithm, memory_bytes=memory_bytes, parameters=parameters)
    Shares(Budget(memory_bytes), block_rows=1)  # refuses a budget that is too small, before any work
    drive = choose_drive(condition)
    kernel = _kernel(drive)
    return JoinPlan(
        condition,
        how,
        kernel,
        driven=_driven(drive),
        checked=checked_beside(condition, (*drive.equal, *drive.predicates)),
        at_rest=True,
        memory_bytes=memory_bytes,
        advice=_advice(condition) if kernel.name == "nested_loop" else (),
    )


def plan_cells(
    condition: Condition, how: str = "inner", *, algorithm: str = "auto", memory_bytes: int | None = None
) -> JoinPlan:
    """The plan of the cells of a join: as for tables, but rows that meet by hash alone need not wait for each other."""
    drive = choose_drive(condition)
    if algorithm != "auto" or (join_type(how) == "inner" and drive.equal and drive.kind == "none"):
        return plan_join(condition, how, algorithm=algorithm, memory_bytes=memory_bytes)
    return plan_tables(condition, how, algorithm=algorithm, memory_bytes=memory_bytes)


def plan_window(
    condition: Condition, how: str, window: Window, *, algorithm: str = "auto", memory_bytes: int | None = None
) -> JoinPlan:
    """The plan of a windowed join of streams."""
    how = join_type(how)
    if algorithm not in ("auto", "spo"):
        raise PlanError(f"algorithm={algorithm!r} does not join within windows; spo does.")
    if how not in WINDOWED:
        raise PlanError(f"how={how!r} is not available for windowed streams; there are {', '.join(WINDOWED)}.")
    for side, name in enumerate(window.on or ()):
        schema = condition.schemas[side]
        if name not in schema.names or not pa.types.is_timestamp(schema.field(name).type):
            raise InputError(
                f"the window is of time on {name!r}, which is not a timestamp of the {Side(side).name.lower()} side."
            )
    drive = choose_drive(condition)
    return JoinPlan(
        condition,
        how,
        Choice("spo", f"sorted runs of both streams, within {window.text}"),
        driven=_driven(drive),
        checked=checked_beside(condition, (*drive.equal, *drive.predicates)),
        memory_bytes=memory_bytes,
        delays=window.delay_lines,
    )


def with_estimate(plan: JoinPlan, samples: Samples) -> JoinPlan:
    """The plan with what samples of both sides tell."""
    pairs = estimated_pairs(plan.condition, choose_drive(plan.condition), samples)
    return replace(plan, rows=(samples[0].rows, samples[1].rows), pairs=pairs)


def _kernel(drive: Drive) -> Choice:
    what = " AND ".join(describe(p) for p in drive.predicates)
    if drive.equal:
        keys = " AND ".join(describe(p) for p in drive.equal)
        if drive.kind == "none":
            return Choice("equality", f"both sides sorted by {keys} and merged")
        return Choice(f"equality, {drive.kind}", f"groups of equal {keys}, joined by {what} within")
    match drive.predicates:
        case [Distance(left)] if len(left) not in PLANE_AND_SPACE:
            return Choice(*KERNELS["similarity"])
    return Choice(*KERNELS[drive.kind])


def plan_join(
    condition: Condition, how: str = "inner", *, algorithm: str = "auto", memory_bytes: int | None = None
) -> JoinPlan:
    """The plan of an inner join in one cell."""
    how = join_type(how)
    if how != "inner":
        raise PlanError(f"how={how!r} needs tables at rest and algorithm='auto'; here it is inner only.")
    return plan_operator(condition, how, algorithm=algorithm, memory_bytes=memory_bytes)


def plan_operator(
    condition: Condition,
    how: str = "inner",
    *,
    algorithm: str = "auto",
    memory_bytes: int | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> JoinPlan:
    """The plan of a join in process by an operator, which may have parameters."""
    how = join_type(how)
    if parameters and algorithm == "auto":
        raise InputError(
            f"{', '.join(parameters)}: not an option of a join of tables in process. Algorithms have parameters: say "
            "which is meant by algorithm='pmj' or another."
        )
    operator = _operator(condition, algorithm, how)
    check_join_type(operator.name, how)
    check_parameters(operator_class(operator.name), parameters or {})
    Shares(Budget(memory_bytes), block_rows=1)  # refuses a budget that is too small, before any work
    driven = _finders(operator, condition)
    return JoinPlan(
        condition,
        how,
        operator,
        driven=tuple(describe(p) for p in driven),
        checked=checked_beside(condition, driven),
        memory_bytes=memory_bytes,
        advice=_advice(condition) if operator.name == "nested_loop" and algorithm == "auto" else (),
        parameters=dict(parameters or {}),
    )


def _finders(operator: Choice, condition: Condition) -> tuple[Predicate, ...]:
    """The predicates by which an operator finds candidates."""
    if operator.name == "nested_loop":
        return ()
    if operator.name == "pmj":
        return SweepOrder(condition).predicates
    if operator.name == "diner" and not condition.equalities:
        return tuple(p for p in (ordering_predicate(condition),) if p is not None and p in condition.predicates)
    return condition.equalities


def _driven(drive: Drive) -> tuple[str, ...]:
    equal, others = ([describe(p) for p in predicates] for predicates in (drive.equal, drive.predicates))
    if len(others) > 2:  # inequalities: the data decides
        others = [f"the two that the fewest pairs satisfy of {', '.join(others)}"]
    return (*equal, *others)


def checked_beside(condition: Condition, driven: Sequence[Predicate]) -> tuple[str, ...]:
    """What candidates have to satisfy beside what drives the join."""
    others = [describe(p) for p in condition.predicates if p not in driven]
    return (*others, *(text_of(part) for part in condition.residual))


def _advice(condition: Condition) -> tuple[str, ...]:
    """What would avoid the nested loop."""
    alternatives = [part for part in condition.residual if isinstance(part, Call) and part.function == "or"]
    return (NESTED_LOOP_ADVICE, *(f"{text_of(part)}: {OR_ADVICE}" for part in alternatives))


def _operator(condition: Condition, algorithm: str, how: str) -> Choice:
    if algorithm != "auto":
        refusal = operator_class(algorithm).refuses(condition)
        if refusal is not None:
            raise PlanError(f"algorithm={algorithm!r} cannot run {condition.text}: {refusal}.")
        return Choice(algorithm, "asked for" + (f"; {SweepOrder(condition).text}" if algorithm == "pmj" else ""))
    if how != "inner" and SweepOrder.exists(condition):
        return Choice("pmj", f"progressive merge join, for {how}; {SweepOrder(condition).text}")
    if condition.equalities:
        keys = " AND ".join(describe(p) for p in condition.equalities)
        return Choice("shj", f"symmetric hash join on {keys}")
    return Choice("nested_loop", "no equality to hash on")
