"""The best partners of a row: the first `top`, by an order, of those that satisfy the condition.

    order_by=["abs(l.t - r.t)", "r.price DESC"]        top=3        ties="any" | "all"

A key reads the right side, or both; one that reads only the left side is the same for all partners of a row. Partners
with a null key come last in either direction, unless the key says NULLS FIRST. Without an order, any partner will do.

If the order is a distance (`is_distance`), partners without a finite distance are excluded: null, NaN and infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from typing import Literal as OneOf

import pyarrow as pa

from dovetail.columns.batches import empty_batch
from dovetail.condition.bind import Binder
from dovetail.condition.evaluate import evaluate
from dovetail.condition.expression import Expression, is_opaque, sides_of, type_of
from dovetail.condition.meanings import ordered_key
from dovetail.condition.render import text_of
from dovetail.condition.select import DIRECTION, OrderBy
from dovetail.condition.sql import parse_text
from dovetail.condition.translate import Translator
from dovetail.condition.unify import sort_key
from dovetail.core.rows import Side
from dovetail.errors import ConditionError, InputError

Ties = OneOf["any", "all"]


class BestKey(NamedTuple):
    """An expression over the right side or both, and the direction of the order."""

    value: Expression
    descending: bool = False
    nulls_first: bool = False

    @property
    def text(self) -> str:
        return text_of(self.value) + " DESC" * self.descending + " NULLS FIRST" * self.nulls_first


@dataclass(frozen=True, slots=True)
class Best:
    """The first `top` partners of each left row by an order."""

    top: int
    order: tuple[BestKey, ...] = ()  # empty: any partner
    ties: Ties = "any"  # "all": also those that tie with the last one in the order
    is_distance: bool = False

    @property
    def text(self) -> str:
        many = "the first" if self.top == 1 else f"the first {self.top:,}"
        if not self.order:
            return f"{'any' if self.top == 1 else f'any {self.top:,}'} of each left row's partners"
        ties = ", and all that tie with the last" if self.ties == "all" else ""
        return f"{many} of each left row's partners by {', '.join(key.text for key in self.order)}{ties}"


def parse_best(
    top: int,
    order_by: OrderBy | None,
    ties: Ties,
    schemas: tuple[pa.Schema, pa.Schema],
    zone: str | None = None,
    in_process: bool = True,
    trusted: bool = False,
    is_distance: bool = False,
) -> Best:
    """The description, bound to the two schemas. A wrong description is refused here."""
    if order_by is None:
        if ties == "all":
            raise InputError(
                "ties='all' needs order_by=: without an order, all partners tie. Give one, or leave ties out."
            )
        return Best(top)
    texts: Any = [order_by] if isinstance(order_by, str) else order_by
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(
            f"order_by is SQL text such as 'abs(l.t - r.t)' or 'r.y DESC', or a list of these; got {order_by!r}."
        )
    binder = Binder(schemas, zone)
    keys = [_key(text, binder, in_process, trusted) for text in texts]
    return Best(top, tuple(key for key in keys if key is not None), ties, is_distance)


def _key(text: str, binder: Binder, in_process: bool, trusted: bool) -> BestKey | None:
    found = DIRECTION.match(text)
    assert found is not None  # the pattern matches any text
    expression, direction, nulls = found.groups()
    value = binder.bind(Translator(binder.schemas, trusted).condition(parse_text(expression, "order")))
    if not sides_of(value):
        raise ConditionError(f"order_by={text!r} reads no column. Order by an expression over r, or over both sides.")
    value = ordered_key(value, binder.schemas)
    if pa.types.is_nested(type_of(value)):
        value = sort_key(value)
    if in_process or not is_opaque(value):
        evaluate(value, *(empty_batch(schema) for schema in binder.schemas))  # fails now if it cannot be evaluated
    if Side.RIGHT not in sides_of(value):
        return None  # the same for all partners of a row
    return BestKey(value, (direction or "").lower() == "desc", (nulls or "").lower() == "first")
