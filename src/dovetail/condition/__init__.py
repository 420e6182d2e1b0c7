"""Parses conditions: SQL text, column names or expressions become typed predicates with filters and a residual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from dovetail.columns.batches import empty_batch
from dovetail.condition.bands import closed_bounds
from dovetail.condition.bind import Binder, bind
from dovetail.condition.evaluate import evaluate, keyed_rows, matching, passing
from dovetail.condition.expression import (
    Call,
    Column,
    Expression,
    Literal,
    Opaque,
    columns_of,
    connect,
    is_opaque,
    quote_name,
    quoted_if_needed,
    sides_of,
)
from dovetail.condition.names import (
    SIDE_NAMES,
    candidates,
    close_name,
    is_pair,
    is_text,
    list_names,
    names_column,
    resolve,
    shared_columns,
)
from dovetail.condition.normalise import normalise
from dovetail.condition.polars_expressions import read_polars
from dovetail.condition.predicates import (
    Band,
    Condition,
    Distance,
    Equal,
    Interval,
    Less,
    NotEqual,
    Overlap,
    Predicate,
    Rectangles,
    Strategy,
)
from dovetail.condition.render import condition_text, describe, spark_sql, text_of
from dovetail.condition.sql import read_predicate, read_sql, too_deep, unqualified
from dovetail.core.rows import Side
from dovetail.errors import ConditionError
from dovetail.request import PolarsCondition

On = str | Expression | PolarsCondition | Sequence[str | tuple[str, str] | Expression | PolarsCondition]
"""What a join accepts as `on`: a condition as text or expression, a column of both sides, or a list of these and of
pairs of columns."""


def parse(
    on: On,
    left_schema: pa.Schema,
    right_schema: pa.Schema,
    zone: str | None = None,
    in_process: bool = False,
) -> Condition:
    """The condition, bound to the two schemas. A wrong condition is refused here, before any work.

    Timestamps without a time zone are in `zone` (on Spark, the session's). With `in_process`, a function that only
    Spark can evaluate is an error.
    """
    try:
        if isinstance(on, str | Column | Literal | Call | Opaque):
            return _parse_again(_Exactly(on), _Exactly(left_schema), _Exactly(right_schema), zone, in_process)
        return _parse(on, (left_schema, right_schema), zone, in_process)
    except RecursionError:
        raise too_deep() from None


class _Exactly:
    """A value that equals another only if they are identical.

    Arrow's schemas compare equal even if their metadata differ; in Python 1, 1.0 and True are equal.
    """

    __slots__ = ("_form", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._form = value.serialize().to_pybytes() if isinstance(value, pa.Schema) else repr(value)

    def __hash__(self) -> int:
        return hash(self._form)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Exactly) and self._form == other._form


@lru_cache(maxsize=256)  # for small joins that are repeated, parsing would take longer than joining
def _parse_again(on: _Exactly, left: _Exactly, right: _Exactly, zone: str | None, in_process: bool) -> Condition:
    return _parse(on.value, (left.value, right.value), zone, in_process)


def _parse(on: On, schemas: tuple[pa.Schema, pa.Schema], zone: str | None, in_process: bool) -> Condition:
    binder = Binder(schemas, zone)
    bound = binder.bind(connect("and", conjuncts_of(on, schemas)))
    if bound.type is not None and not pa.types.is_boolean(bound.type) and not pa.types.is_null(bound.type):
        raise ConditionError(
            f"{text_of(bound)} is not a condition: it is {bound.type}, not true or false.{_completion(bound, schemas)}"
        )
    condition = normalise(bound, binder)
    _check(condition, in_process)
    if isinstance(on, str) and not names_column(on, schemas):
        return replace(condition, text=" ".join(on.split()))
    return replace(condition, text=condition_text(condition))


def conjuncts_of(on: On, schemas: tuple[pa.Schema, pa.Schema], trusted: bool = False) -> list[Expression]:
    """Parse what was given as `on`, without binding it: the conjuncts, all of which must hold."""
    if isinstance(on, str):
        return [expression_of_names([on], schemas) if names_column(on, schemas) else read_sql(on, schemas, trusted)]
    if isinstance(on, PolarsCondition):
        return [read_polars(on, schemas)]
    if isinstance(on, Column | Literal | Call | Opaque):
        return [on]
    if not isinstance(on, Sequence):
        raise ConditionError(
            f"a condition is SQL text such as 'l.id = r.id', the name of a column, a list of these, PySpark Columns or "
            f"Polars expressions; got {type(on).__name__}."
        )
    if not on:
        raise ConditionError("the condition is an empty list. Name at least one column, or write 'TRUE' for all pairs.")
    return [_item(item, schemas, trusted) for item in on]


def _item(item: Any, schemas: tuple[pa.Schema, pa.Schema], trusted: bool) -> Expression:
    """In a list, a plain name means equality of that column on both sides; a pair, equality of two columns."""
    if isinstance(item, Column | Literal | Call | Opaque):
        return item
    if isinstance(item, PolarsCondition):
        return read_polars(item, schemas)
    if is_pair(item):
        return Call("=", tuple(resolve(side, item[side], schemas) for side in Side))
    if not isinstance(item, str):
        raise ConditionError(
            f"a list of conditions holds names, pairs of names, SQL text and expressions; got {type(item).__name__}."
        )
    if is_text(item, schemas):
        return read_sql(item, schemas, trusted)
    return expression_of_names([item], schemas)


def _completion(bound: Expression, schemas: tuple[pa.Schema, pa.Schema]) -> str:
    """For an error message: a condition that completes a lone column."""
    match bound:
        case Column(side, name) if names := schemas[side.other].names:
            other = name if name in names else close_name(name, names) or names[0]
            here, there = (f"{s.alias}.{quoted_if_needed(n)}" for s, n in ((side, name), (side.other, other)))
            return f" Compare it with the other input, for example {here} = {there}."
    return ""


def expression_of_names(columns: Sequence[str], schemas: tuple[pa.Schema, pa.Schema]) -> Expression:
    """Equality of columns that have the same name on both sides."""
    for name in columns:
        having = [side for side in Side if candidates(schemas[side], name)]
        if len(having) == 1 and (others := schemas[having[0].other].names):
            (side,) = having
            here, there = quoted_if_needed(name), quoted_if_needed(close_name(name, others) or others[0])
            raise ConditionError(
                f"{side.other.alias}.{name}: no such column. A name in a list is that of a column of both inputs; "
                f"if they differ, write it as text, for example '{side.alias}.{here} = {side.other.alias}.{there}'. "
                f"The {SIDE_NAMES[side.other]} input has: {list_names(others)}."
            )
    equalities = [Call("=", tuple(resolve(side, name, schemas) for side in Side)) for name in columns]
    return connect("and", equalities)


def _check(condition: Condition, in_process: bool) -> None:
    """Evaluate all expressions on empty batches, so that an impossible cast fails early."""
    left, right = (empty_batch(schema) for schema in condition.schemas)
    for conjunct in (*condition.conjuncts, *condition.filters[0], *condition.filters[1]):
        if in_process or not is_opaque(conjunct):
            evaluate(conjunct, left, right)


__all__ = [
    "Band",
    "Call",
    "Column",
    "Condition",
    "ConditionError",
    "Distance",
    "Equal",
    "Expression",
    "Interval",
    "Less",
    "Literal",
    "NotEqual",
    "On",
    "Opaque",
    "Overlap",
    "Predicate",
    "Rectangles",
    "Strategy",
    "bind",
    "closed_bounds",
    "columns_of",
    "conjuncts_of",
    "describe",
    "evaluate",
    "expression_of_names",
    "is_opaque",
    "keyed_rows",
    "matching",
    "parse",
    "passing",
    "quote_name",
    "read_predicate",
    "read_sql",
    "shared_columns",
    "sides_of",
    "spark_sql",
    "text_of",
    "unqualified",
]
