"""Plans joins: from a condition to an operator and a router, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol

from dovetail.condition import Condition, describe
from dovetail.condition.graph import Graph
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.errors import InputError, PlanError
from dovetail.operators.protocol import check_parameters
from dovetail.operators.registry import (
    TWO,
    check_join_type,
    operator_class,
    operator_for,
    operator_names,
    operator_spec,
    present_name,
)
from dovetail.planning.kernel_plans import advice_on, by_kernel, by_spark, checked_beside, is_plain_equality
from dovetail.planning.operator_choice import (
    Arrivals,
    Memory,
    choose_operator,
    describe_choice,
)
from dovetail.planning.plan import Choice, JoinPlan
from dovetail.planning.statistics import Samples, estimated_pairs
from dovetail.planning.stream_plans import with_table, within_window
from dovetail.storage.budget import Budget, Shares
from dovetail.window import Window

DIAG, WAVES, NATIVE = "diag", "waves", "native"  # algorithms that are not operators, besides Spark's own join
DIAG_OPTIONS = ("share", "one", "tables")
KERNELS_BY_TWOS = "kernels"
KEPT_FOR_EVER = (
    "state grows without bound: add a window, or watermarks and a bound of event time in the condition, to expire rows"
)
SPARE = 4  # times the expected size of tables and their indexes: other memory use is unknown
INDEX_BYTES = 48  # at most, per row of an index


UNSUITED = {
    "measures": "which emit rows. Leave it out",
    "self_join": "where one that is joined with itself is recognised. Leave it out",
    "shed": "where lost results would not be counted. Leave it out",
    "sorted_output": (
        "whose cells and micro-batches have no order between them. Leave it out, and sort what the query has written; "
        "tables at rest are sorted by dovetail.join(…).orderBy(…)"
    ),
}
"""Parameters of operators that have no effect there, why, and what to do."""


class Diagonals(Protocol):
    """Plans Diag-Joins, from a sample of rows that can be read by position."""

    def plan(
        self,
        condition: Condition,
        how: JoinType,
        memory_bytes: int | None,
        parameters: Mapping[str, Any],
        *,
        asked: bool,
    ) -> tuple[JoinPlan | None, tuple[str, ...]]:
        """The plan, if it is requested or cheaper; otherwise None and the reason."""


class Unseen:
    """Rows that can be read by position, but are not read: requests are checked before any data is read."""

    def plan(
        self,
        condition: Condition,
        how: JoinType,
        memory_bytes: int | None,
        parameters: Mapping[str, Any],
        *,
        asked: bool,
    ) -> tuple[JoinPlan | None, tuple[str, ...]]:
        return (
            JoinPlan(Graph.of(condition), how, Choice(DIAG, "asked for"), memory_bytes=memory_bytes) if asked else None
        ), ()


class TableSize(NamedTuple):
    """The size of both tables in memory, together."""

    rows: int
    nbytes: int

    def fits(self, memory_bytes: int) -> bool:
        """Whether all rows and their indexes fit, with a wide margin."""
        return SPARE * (self.nbytes + INDEX_BYTES * self.rows) <= memory_bytes


@dataclass(frozen=True, slots=True)
class InputFacts:
    """What is known of both inputs besides their schemas: how they arrive, where they are joined, their sizes."""

    kind: Literal["at_rest", "progressive", "stream"] = "at_rest"
    on_spark: bool = False
    ends: bool = True  # for streams: whether their end can be detected
    window: Window | None = None  # for streams
    table: Side | None = None  # the input at rest, if the other is a stream
    size: TableSize | None = None  # if known for certain; an estimate is not enough
    diagonal: Diagonals | None = None  # if rows can be read by position
    native: bool = False  # on Spark: whether Spark's own join is an option


AT_REST = InputFacts()


def plan_join(
    joined: Condition | Graph,
    how: str = JoinType.INNER,
    facts: InputFacts = AT_REST,
    *,
    algorithm: str = "auto",
    memory_bytes: int | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> JoinPlan:
    """The plan of a join: what runs, and where. Unsupported requests are refused here.

    On Spark this is the plan of one cell; a router is added after reading a sample.
    """
    how = JoinType.read(how)
    algorithm, given = present_name(algorithm, parameters or {}, warn=True)
    if isinstance(joined, Graph):
        return _of_several(joined, how, facts, algorithm, memory_bytes, given)
    condition = joined
    if facts.table is not None:
        if given and algorithm == "auto":
            raise InputError(_no_option(given))
        return with_table(condition, how, facts.table, algorithm, memory_bytes)
    if facts.window is not None:
        if given:
            raise PlanError(f"{', '.join(given)}: joins of streams by event time or within windows take no parameters.")
        return within_window(condition, how, facts.window, algorithm, memory_bytes)
    if facts.on_spark and how is not JoinType.INNER:
        _check_outer(how, facts, algorithm)
    Shares(Budget(memory_bytes), block_rows=1)  # refuses a budget that is too small, before any work
    if given and algorithm == "auto":
        raise InputError(_no_option(given))
    plan, advice = _along_diagonal(condition, how, facts, algorithm, memory_bytes, given)
    if plan is not None:
        return plan
    name = "auto" if algorithm == DIAG else algorithm
    if facts.kind == "progressive" and facts.on_spark:
        plan = _in_waves(condition, how, name, memory_bytes)
    elif facts.kind == "stream":
        plan = _of_streams(condition, how, facts, name, memory_bytes, given)
    elif name != "auto":
        if facts.on_spark:
            _refuse_unsuited(given, "DataFrames")
        also = ("auto",) if facts.diagonal is None else ("auto", DIAG)
        plan = _by_operator(condition, how, _choose_named(Graph.of(condition), name, also), memory_bytes, given)
    elif facts.kind == "progressive":
        plan = _by_operator(condition, how, _as_rows_come(condition, how, facts, memory_bytes), memory_bytes)
    elif facts.native and memory_bytes is None and is_plain_equality(condition):
        plan = by_spark(condition, how)
    elif facts.on_spark and how is JoinType.INNER and condition.equalities and condition.strategy.kind == "none":
        shj = describe_choice("shj", Graph.of(condition))  # no row waits for the others
        plan = _by_operator(condition, how, shj, memory_bytes)
    else:
        plan = by_kernel(condition, how, memory_bytes)
    return replace(plan, advice=(*plan.advice, *advice))


def _of_several(
    graph: Graph,
    how: JoinType,
    facts: InputFacts,
    algorithm: str,
    memory_bytes: int | None,
    parameters: Mapping[str, Any],
) -> JoinPlan:
    """The plan of a join of several inputs: with kernels, two inputs at a time, or with an operator as rows arrive."""
    if how is not JoinType.INNER:
        raise PlanError(f"how={how!r}: three and more inputs are joined by inner joins only.")
    inputs = len(graph.aliases)
    Shares(Budget(memory_bytes), 1, inputs)  # refuses a budget that is too small, before any work
    driven = tuple(edge.text for edge in graph.edges)
    checked = ("what reads three and more inputs",) if graph.residual else ()
    exceeds = memory_bytes is not None and facts.size is not None and not facts.size.fits(memory_bytes)
    if algorithm == "auto" and facts.kind == "at_rest" and not (exceeds and choose_operator(Arrivals(graph))):
        if parameters:
            raise InputError(_no_option(parameters, inputs))
        kernels = Choice(KERNELS_BY_TWOS, "two inputs at a time, those with the fewest partial results first")
        return JoinPlan(graph, how, kernels, driven, checked, at_rest=True, memory_bytes=memory_bytes)
    if algorithm == "auto":
        found = choose_operator(Arrivals(graph))
        if found is None:
            raise PlanError(
                f"no algorithm joins {graph.text} as rows arrive: every input needs an equality, a band or an "
                "inequality with another. Tables at rest are joined on any condition by dovetail.multijoin."
            )
    else:
        found = _choose_named(graph, algorithm, ("auto",))
    check_parameters(operator_spec(found.name, inputs), parameters)
    return JoinPlan(graph, how, found, driven, checked, memory_bytes=memory_bytes, parameters=dict(parameters))


def _no_option(given: Mapping[str, Any], inputs: int = TWO) -> str:
    """The message for a parameter that has no effect without an algorithm."""
    name = next(iter(given))
    owners = [owner for owner in operator_names(inputs) if name in operator_spec(owner, inputs).parameters]
    if name in DIAG_OPTIONS and inputs == TWO:
        owners.append(DIAG)
    if owners:
        others = f" or {', '.join(owners[1:])}" if len(owners) > 1 else ""
        return (
            f"{name} is a parameter of an algorithm: say which, algorithm={owners[0]!r}{others}; or leave {name} out."
        )
    return f"{name}: no algorithm for {inputs} inputs has such a parameter. Leave it out."


def _check_outer(how: JoinType, facts: InputFacts, algorithm: str) -> None:
    """Refuse algorithms that support only inner joins on Spark."""
    if facts.kind == "progressive":
        raise PlanError(f"how={how!r}: Spark DataFrames are joined progressively by inner joins only.")
    if facts.kind == "stream":
        if facts.ends:
            return
        raise PlanError(
            f"how={how!r} on streams needs to know when a row can no longer find a partner. Set a window, or "
            "watermarks on the inputs and a condition that bounds their event time, as in r.ts BETWEEN l.ts AND l.ts + "
            "INTERVAL 1 HOUR; or end=…, if the streams end."
        )
    if algorithm not in ("auto", DIAG):
        raise PlanError(
            f"how={how!r}: algorithm={algorithm!r} supports inner joins only on Spark. Use algorithm='auto'."
        )


def _along_diagonal(
    condition: Condition,
    how: JoinType,
    facts: InputFacts,
    algorithm: str,
    memory_bytes: int | None,
    parameters: Mapping[str, Any],
) -> tuple[JoinPlan | None, tuple[str, ...]]:
    asked = algorithm == DIAG
    if not asked and (algorithm != "auto" or facts.kind != "at_rest" or facts.diagonal is None):
        return None, ()
    if asked and not condition.equalities:
        raise PlanError(f"algorithm={DIAG!r} cannot run {condition.text}: it needs an equality between the two sides.")
    if facts.diagonal is None:
        raise InputError(
            f"algorithm={DIAG!r} needs the number of rows and may read them twice: give tables or Parquet "
            "files in process, plain reads of Parquet files on Spark."
        )
    return facts.diagonal.plan(condition, how, memory_bytes, parameters, asked=asked)


def _in_waves(condition: Condition, how: JoinType, algorithm: str, memory_bytes: int | None) -> JoinPlan:
    """A plan with small jobs over cells, each of which runs a kernel."""
    if algorithm not in ("auto", WAVES):
        raise PlanError(f"algorithm={algorithm!r} is for progressive joins in process; DataFrames are joined in waves.")
    plan = by_kernel(condition, how, memory_bytes)
    inside = f"in a cell {plan.operator.name}: {plan.operator.why}"
    why = f"small jobs over cells, those with the most expected results first; {inside}"
    return replace(plan, operator=Choice(WAVES, why), at_rest=False)


def _of_streams(
    condition: Condition,
    how: JoinType,
    facts: InputFacts,
    algorithm: str,
    memory_bytes: int | None,
    parameters: Mapping[str, Any],
) -> JoinPlan:
    """A plan with an operator whose state is kept across micro-batches."""
    if not condition.equalities and not facts.ends:
        raise PlanError(
            f"{condition.text} has no equality between the two streams: without a window, state and work grow without "
            "bound. Set window=dovetail.window(rows=…) or dovetail.window(time=…, on=…), set watermarks and bound "
            "event time in the condition, add an equality, or, if the streams end, set end=…."
        )
    if algorithm == "auto":
        operator = _as_rows_come(condition, how, facts, memory_bytes)
    else:
        operator = _choose_named(Graph.of(condition), algorithm, ("auto",))
    if not operator_spec(operator.name).emits_at_arrival and not facts.ends:
        raise PlanError(
            f"algorithm={operator.name!r} emits part of its output only when the inputs end, so it cannot run on "
            "unbounded streams. If the streams end, set end= to a predicate for the end-of-stream row "
            "(end=\"kind = 'end'\"), or end='available' if the available data is complete. Otherwise use "
            "algorithm='auto'."
        )
    _refuse_unsuited(parameters, "streams")
    plan = _by_operator(condition, how, operator, memory_bytes, parameters)
    return plan if facts.ends else replace(plan, advice=(*plan.advice, KEPT_FOR_EVER))


def plan_operator(
    algorithm: str, graph: Graph, how: str = JoinType.INNER, parameters: Mapping[str, Any] | None = None
) -> JoinPlan:
    """The plan of an operator that is requested by name, on any engine. What it does not support is refused."""
    name, given = present_name(algorithm, parameters or {}, warn=True)
    kind = operator_for(name, graph)
    check_join_type(name, how, len(graph.aliases))
    check_parameters(kind.spec, given)
    return JoinPlan(graph, JoinType.read(how), Choice(name, "asked for"), parameters=given)


def _refuse_unsuited(parameters: Mapping[str, Any], inputs: str) -> None:
    for name, why in UNSUITED.items():
        if name in parameters:
            raise PlanError(f"{name}: not for {inputs} on Spark, {why}.")


def with_estimate(plan: JoinPlan, samples: Samples) -> JoinPlan:
    """The plan with statistics from samples of both sides."""
    pairs = estimated_pairs(plan.condition, samples)
    return replace(plan, rows=(samples[0].rows, samples[1].rows), pairs=pairs)


def _by_operator(
    condition: Condition,
    how: JoinType,
    operator: Choice,
    memory_bytes: int | None,
    parameters: Mapping[str, Any] | None = None,
) -> JoinPlan:
    """A plan with an operator that takes rows as they arrive."""
    check_join_type(operator.name, how)
    graph, kind = Graph.of(condition), operator_class(operator.name)
    check_parameters(kind.spec, parameters or {})
    driving = kind.approach(graph).driving
    return JoinPlan(
        graph,
        how,
        operator,
        driven=tuple(describe(p) for p in driving),
        checked=checked_beside(condition, driving),
        memory_bytes=memory_bytes,
        advice=advice_on(condition, driving),
        parameters=dict(parameters or {}),
    )


def _choose_named(graph: Graph, algorithm: str, also: tuple[str, ...]) -> Choice:
    """The operator of that name, unless it does not support the condition."""
    return Choice(algorithm, f"asked for; {operator_for(algorithm, graph, also).approach(graph).text}")


def _as_rows_come(condition: Condition, how: JoinType, facts: InputFacts, memory_bytes: int | None) -> Choice:
    """A plan with an operator for arriving inputs, in process or as streams on Spark."""
    memory: Memory = "unlimited"
    if memory_bytes is not None:
        memory = "enough" if facts.size is not None and facts.size.fits(memory_bytes) else "scarce"
    chosen = choose_operator(Arrivals(Graph.of(condition), how, memory, facts.ends))
    assert chosen is not None  # a nested loop joins any two inputs, spo by any join type
    return chosen
