"""What results are ordered by, read from SQL text: "l.x", "r.y DESC", "l.a + 1 ASC NULLS LAST"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from dovetail.condition.bind import Binder
from dovetail.condition.evaluate import evaluate
from dovetail.condition.expression import Expression, is_opaque, sides_of, type_of
from dovetail.condition.sql import parse_text
from dovetail.condition.translate import Translator
from dovetail.condition.unify import sort_key
from dovetail.core.rows import Side, empty_batch
from dovetail.errors import ConditionError, InputError

DIRECTION = re.compile(r"^(.*?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*$", re.IGNORECASE | re.DOTALL)

OrderBy = str | Sequence[str]


class OrderKey(NamedTuple):
    """An expression over one side, and which of its values come first."""

    value: Expression
    side: Side
    descending: bool
    nulls_first: bool


def parse_order(
    order_by: OrderBy, left_schema: pa.Schema, right_schema: pa.Schema, zone: str | None = None, in_process: bool = True
) -> tuple[OrderKey, ...]:
    """The keys, bound to the two schemas. As in Spark, nulls come first in ascending order and last in descending."""
    texts: Any = [order_by] if isinstance(order_by, str) else order_by
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(
            f"order_by is SQL text such as 'l.x' or 'r.y DESC NULLS LAST', or a list of these; got {order_by!r}."
        )
    binder = Binder((left_schema, right_schema), zone)
    return tuple(_key(text, binder, in_process) for text in texts)


def _key(text: str, binder: Binder, in_process: bool) -> OrderKey:
    found = DIRECTION.match(text)
    assert found is not None  # it matches any text
    expression, direction, nulls = found.groups()
    value = binder.bind(Translator(binder.schemas).expression(parse_text(expression, "order")))
    sides = sides_of(value)
    if len(sides) != 1:
        raise ConditionError(f"order_by={text!r} reads {len(sides)} sides: order by an expression over one of them.")
    if pa.types.is_nested(type_of(value)):
        value = sort_key(value)
    if in_process or not is_opaque(value):
        evaluate(value, *(empty_batch(schema) for schema in binder.schemas))  # what cannot be evaluated shows up now
    descending = (direction or "").lower() == "desc"
    nulls_first = not descending if nulls is None else nulls.lower() == "first"
    return OrderKey(value, next(iter(sides)), descending, nulls_first)
