"""A condition as joins use it: predicates, filters and a residual, bound to two schemas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from dovetail.condition.expression import Expression
from dovetail.condition.predicates import Equal, Predicate
from dovetail.condition.strategy import Strategy, choose_strategy
from dovetail.core.rows import Side


@dataclass(frozen=True, slots=True)
class Condition:
    """A conjunction, bound to two schemas.

    `filters[side]` are conjuncts that read one side only (or none): a row that fails them matches nothing.
    `residual` are conjuncts over both sides that no predicate covers.
    """

    predicates: tuple[Predicate, ...]
    filters: tuple[tuple[Expression, ...], tuple[Expression, ...]]
    residual: tuple[Expression, ...]
    schemas: tuple[pa.Schema, pa.Schema]
    text: str = field(compare=False, default="")
    alternatives: tuple[Condition, ...] = field(compare=False, default=(), repr=False)
    """Of a disjunction: conditions that find candidates by themselves. A pair satisfies at most one of them; whatever
    passes the filters and satisfies one is a result. Empty where the conjunction drives the join, or nothing does."""
    strategy: Strategy = field(init=False, compare=False, repr=False)
    """How candidates are found. It follows from the predicates and is chosen once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "strategy", choose_strategy(self.predicates))

    @property
    def equalities(self) -> tuple[Equal, ...]:
        return self.strategy.equal

    @property
    def conjuncts(self) -> tuple[Expression, ...]:
        """Everything that both rows together must satisfy, as it was written."""
        return tuple(s for p in self.predicates for s in p.source) + self.residual

    def conjuncts_beside(self, covered: Sequence[Predicate]) -> tuple[Expression, ...]:
        """What remains to be checked on candidates that satisfy the covered predicates."""
        sources = {source for predicate in covered for source in predicate.source}
        return tuple(conjunct for conjunct in self.conjuncts if conjunct not in sources)

    @property
    def finds_candidates(self) -> bool:
        """Whether anything but a look at every pair does."""
        return bool(self.equalities or self.strategy.predicates or self.alternatives)

    @property
    def branches(self) -> tuple[Condition, ...]:
        """The alternatives, with the filters of the whole."""
        return tuple(
            replace(
                one,
                filters=(self.filters[0] + one.filters[0], self.filters[1] + one.filters[1]),
                schemas=self.schemas,
            )
            for one in self.alternatives
        )

    def schema(self, side: Side) -> pa.Schema:
        return self.schemas[side]
