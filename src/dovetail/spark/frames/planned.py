"""A join of two DataFrames before it runs: the request, and the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame

from dovetail.condition import text_of
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.execution.output import output_schema
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import NATIVE, InputFacts, plan_join
from dovetail.request import Request
from dovetail.spark.frames.binding import Bound
from dovetail.spark.session.settings import ignores_case
from dovetail.storage.budget import bytes_of

Inputs = tuple[DataFrame, DataFrame]


@dataclass(frozen=True, slots=True)
class FrameJoin:
    """A requested join, with its condition bound to the DataFrames."""

    request: Request
    inputs: Inputs
    bound: Bound
    output: pa.Schema  # of the result

    def plan(self, facts: InputFacts) -> JoinPlan:
        """The plan of one cell."""
        plan = plan_join(
            self.bound.condition,
            self.request.how,
            facts,
            algorithm="auto" if self.request.algorithm == NATIVE else self.request.algorithm,
            memory_bytes=bytes_of(self.request.memory),
            parameters=self.request.parameters,
        )
        after = tuple(f"{text_of(part)} can be checked by Spark only, on every joined row" for part in self.bound.after)
        return replace(plan, advice=(*plan.advice, *after))

    @property
    def text_after(self) -> str:
        """The part of the condition that only Spark can evaluate."""
        return " AND ".join(text_of(part) for part in self.bound.after)

    def needs_spark(self, plan: JoinPlan) -> bool:
        """Whether only Spark can tell which rows have a partner."""
        return bool(self.bound.after) and plan.how is not JoinType.INNER


@dataclass(frozen=True, slots=True)
class Planned:
    """A join before it runs: `explain` shows what `frame` does."""

    plan: JoinPlan
    frame: Callable[[], DataFrame]

    def with_limit(self, limit: int | None) -> Planned:
        """The same join with at most this many rows, in any order. For a stream, Spark's state counts them."""
        return self if limit is None else Planned(self.plan, lambda: self.frame().limit(limit))


def joined_schema(bound: Bound, how: JoinType = JoinType.INNER, suffix: str = "_right") -> pa.Schema:
    """The schema of the result. If Spark ignores case, names that differ only in case clash as well."""
    left, right = bound.visible(Side.LEFT), bound.visible(Side.RIGHT)
    if ignores_case(bound.frames[0].sparkSession):
        taken = {name.lower() for name in left.names}
        clashing = [f.name not in left.names and f.name.lower() in taken for f in right]
        right = pa.schema([f.with_name(f.name + suffix) if c else f for f, c in zip(right, clashing, strict=True)])
    return output_schema(left, right, suffix, how)
