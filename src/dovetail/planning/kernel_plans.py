"""Plans without an operator: with the kernel of the condition's class, for complete sides, or with Spark's own join.

They also say what drives a join, what is checked on its candidates, and how to avoid a nested loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.condition import Call, Condition, Distance, Predicate, Strategy, describe, text_of
from dovetail.condition.graph import Graph
from dovetail.condition.normalise import MOST as MOST_ALTERNATIVES
from dovetail.condition.render import conjunction
from dovetail.core.join_types import JoinType
from dovetail.matching import PLANE_AND_SPACE
from dovetail.planning.plan import Choice, JoinPlan

SPARK = "spark"  # Spark's own join
KERNELS = {
    "none": ("nested_loop", "nothing to sort or hash by: every pair is a candidate"),
    "one_inequality": ("one_inequality", "both sides sorted; the partners of a row are a suffix of the other side"),
    "two_inequalities": ("two_inequalities", "sweep over one attribute, look up the other in a set of bits"),
    "band": ("band", "both sides sorted; the partners of a row are neighbours"),
    "two_bands": ("band2d", "each attribute sorted by itself; strips of one are swept along the other"),
    "rectangles": ("rectangles", "strips along y, in each of them a sweep along x"),
    "distance": ("distance", "boxes of the radius around left points visit cells of right points"),
    "similarity": ("similarity", "strips along the principal axes, or all distances by a matrix product"),
    "overlap": ("overlap", "two inequalities between starts and ends"),
    "unequal": ("unequal", "all but the partners by equality"),
}
NESTED_LOOP_ADVICE = (
    "every row is compared with every row of the other side, because nothing orders or hashes both: "
    "a conjunct such as l.key = r.key, l.x < r.x or abs(l.x - r.x) <= 1 (joined by AND) would avoid that"
)
UNORDERED = ("none", "unequal")  # classes of conditions for which no operator can spill and find candidates
OR_ADVICE = f"it is joined by a union, if it has at most {MOST_ALTERNATIVES} alternatives and each has such a conjunct"


def by_kernel(condition: Condition, how: JoinType, memory_bytes: int | None) -> JoinPlan:
    """A plan with the kernel of the condition's class, for complete sides."""
    strategy = condition.strategy
    if condition.alternatives:
        return JoinPlan(Graph.of(condition), how, _union(condition), at_rest=True, memory_bytes=memory_bytes)
    return JoinPlan(
        Graph.of(condition),
        how,
        _kernel(strategy),
        driven=describe_strategy(strategy),
        checked=checked_beside(condition, (*strategy.equal, *strategy.predicates)),
        at_rest=True,
        memory_bytes=memory_bytes,
        advice=advice_on(condition, strategy.predicates),
    )


def is_plain_equality(condition: Condition) -> bool:
    """Whether candidates are found by equal keys alone, and the other predicates are only checked."""
    return bool(condition.equalities) and condition.strategy.kind == "none" and not condition.alternatives


def by_spark(condition: Condition, how: JoinType) -> JoinPlan:
    """A plan with Spark's own join, which keeps rows in the JVM."""
    strategy = condition.strategy
    return JoinPlan(
        Graph.of(condition),
        how,
        Choice(SPARK, "Spark's own join: for equal keys alone it is faster than to pass rows to Python"),
        driven=describe_strategy(strategy),
        checked=checked_beside(condition, strategy.equal),
    )


def _union(condition: Condition) -> Choice:
    first, *later = (alternative.text for alternative in condition.alternatives)
    return Choice("union", f"{', then '.join((first, *later))} without what earlier alternatives have found")


def _kernel(strategy: Strategy) -> Choice:
    what = conjunction(strategy.predicates)
    if strategy.equal:
        keys = conjunction(strategy.equal)
        if strategy.kind == "none":
            return Choice("equality", f"one side in buckets by {keys}, where the other looks its rows up")
        return Choice(f"equality, {strategy.kind}", f"groups of equal {keys}, joined by {what} within")
    match strategy.predicates:
        case [Distance(left)] if len(left) not in PLANE_AND_SPACE:
            return Choice(*KERNELS["similarity"])
    return Choice(*KERNELS[strategy.kind])


def describe_strategy(strategy: Strategy) -> tuple[str, ...]:
    equal, others = ([describe(p) for p in predicates] for predicates in (strategy.equal, strategy.predicates))
    if len(others) > 2:  # three or more inequalities: the data decides
        others = [f"the two that the fewest pairs satisfy of {', '.join(others)}"]
    return (*equal, *others)


def checked_beside(condition: Condition, driven: Sequence[Predicate]) -> tuple[str, ...]:
    """The predicates checked on candidates, besides those that drive the join."""
    known = set(driven)
    others = [describe(p) for p in condition.predicates if p not in known]
    return (*others, *(text_of(part) for part in condition.residual))


def advice_on(condition: Condition, driving: Sequence[Predicate]) -> tuple[str, ...]:
    """How to avoid a nested loop, if the condition has no better algorithm."""
    if driving or condition.equalities or condition.strategy.kind not in UNORDERED:
        return ()
    alternatives = [part for part in condition.residual if isinstance(part, Call) and part.function == "or"]
    return (NESTED_LOOP_ADVICE, *(f"{text_of(part)}: {OR_ADVICE}" for part in alternatives))
