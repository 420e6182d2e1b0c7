"""Parses what is selected from the pairs of a join: aggregates, the columns to group by, and an order.

    {"n": "count(*)", "total": "sum(r.amount * 2)"}        by=["l.region", "l.day"]
    order_by=["l.x", "r.y DESC", "l.a + 1 ASC NULLS LAST"]

An aggregate takes an expression over one side. Types are Spark's: sums of integers are bigint, sums of decimal(p, s)
are decimal(p + 10, s) and averages decimal(p + 4, s + 4), with at most 38 digits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from typing import Literal as OneOf

import pyarrow as pa
from sqlglot import exp

from dovetail.columns.batches import empty_batch
from dovetail.condition import names, types
from dovetail.condition.bind import Binder
from dovetail.condition.evaluate import evaluate
from dovetail.condition.expression import Column, Expression, is_opaque, sides_of, type_of
from dovetail.condition.meanings import ordered_key, refuse_order, refuse_period
from dovetail.condition.render import text_of
from dovetail.condition.sql import parse_text
from dovetail.condition.translate import Translator
from dovetail.condition.unify import sort_key, unify
from dovetail.core.codes import is_fixed
from dovetail.core.join_types import JoinType
from dovetail.core.rows import Side
from dovetail.errors import ConditionError, InputError

t = pa.types

Function = OneOf["count", "sum", "avg", "min", "max", "min_by", "max_by", "first", "last", "coverage"]
OrderBy = str | Sequence[str]

FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
CHOSEN: dict[type[exp.Expr], Function] = {
    exp.ArgMin: "min_by",
    exp.ArgMax: "max_by",
    exp.First: "first",
    exp.Last: "last",
}
"""Functions that return the value of one partner."""
COVERAGE = "coverage"
KNOWN = "count(*), count(x), sum(x), avg(x), min(x) and max(x)"
IN_PROCESS = (
    f"{KNOWN}; for tables in process also min_by(x, y), max_by(x, y), first(x), last(x) and coverage(start, end)"
)
DIRECTION = re.compile(r"^(.*?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*$", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """function(value), called `name` in the result."""

    name: str
    function: Function
    value: Expression | None  # None: count(*)
    type: pa.DataType
    other: Expression | None = None  # min_by, max_by: the key that selects the partner; coverage: the ends of intervals

    @property
    def text(self) -> str:
        values = [value for value in (self.value, self.other) if value is not None]
        return f"{self.function}({', '.join(map(text_of, values)) or '*'})"


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """A column of one side to group by, called `name` in the result."""

    name: str
    side: Side
    value: Expression  # the column, in a plain type


def parse_aggregates(
    aggregates: Mapping[str, str],
    left_schema: pa.Schema,
    right_schema: pa.Schema,
    zone: str | None = None,
    *,
    in_process: bool = False,
) -> tuple[Aggregate, ...]:
    """The aggregates, bound to the two schemas. Some are computed in process only: they need all partners at once."""
    if not isinstance(aggregates, Mapping):
        raise InputError(
            f"aggregates are a dict of names and SQL, such as {{'total': 'sum(r.amount)'}}; "
            f"got {type(aggregates).__name__}."
        )
    if not aggregates:
        raise InputError("there is no aggregate. Give at least one, such as {'n': 'count(*)'}.")
    binder = Binder((left_schema, right_schema), zone)
    return tuple(_aggregate(name, text, binder, in_process) for name, text in aggregates.items())


def _aggregate(name: Any, text: Any, binder: Binder, in_process: bool) -> Aggregate:
    if not isinstance(name, str) or not isinstance(text, str):
        raise InputError(f"an aggregate has a name and SQL text, such as 'n': 'count(*)'; got {name!r}: {text!r}.")
    if not text.strip():
        raise ConditionError(f"aggregate {name!r} is empty. Write one of {KNOWN}.")
    tree = parse_text(text, "aggregate")
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if in_process and (type(tree) in CHOSEN or (isinstance(tree, exp.Anonymous) and tree.name.lower() == COVERAGE)):
        return _of_partners(name, text, tree, binder)
    function = FUNCTIONS.get(type(tree))
    if function is None:
        raise ConditionError(_not_one(text, tree, in_process))
    if tree.expressions or tree.this is None:
        raise ConditionError(f"{text}: {function} takes one argument.")
    if isinstance(tree.this, exp.Star):
        if function != "count":
            raise ConditionError(f"{text}: only count takes a star; name a column.")
        return Aggregate(name, "count", None, types.INT64)
    if isinstance(tree.this, exp.Distinct):
        raise ConditionError(f"{text}: DISTINCT is not supported. Join, then aggregate the result.")
    if tree.this.find(exp.AggFunc):
        raise ConditionError(f"{text}: an aggregate cannot contain another one.")
    value = _value(text, tree.this, binder)
    return Aggregate(name, function, value, _result_type(text, function, value))


def _of_partners(name: str, text: str, tree: exp.Expr, binder: Binder) -> Aggregate:
    """An aggregate that is the value of one partner, or the length that the intervals of all partners cover."""
    function = CHOSEN.get(type(tree), "coverage")
    given = tree.expressions if function == "coverage" else [tree.this, tree.expression]
    found = [_value(text, one, binder) for one in given if one is not None]
    if len(found) != (1 if function in ("first", "last") else 2):
        takes = {"coverage": "the start and the end of an interval", "first": "one argument", "last": "one argument"}
        raise ConditionError(f"{text}: {function} takes {takes.get(function, 'a value and what it is chosen by')}.")
    value, other = found[0], found[1] if len(found) > 1 else None
    if any(sides_of(one) != {Side.RIGHT} for one in found):
        raise ConditionError(f"{text}: {function} takes expressions over the right side: it chooses among partners.")
    if function != "coverage":
        return Aggregate(name, function, value, type_of(value), other)
    assert other is not None
    start, end = unify((value, other), binder.zone)
    type_ = type_of(start)
    if type_of(end) != type_ or not is_fixed(type_) or t.is_boolean(type_):
        raise ConditionError(f"{text}: coverage needs numbers, dates or timestamps, and {text_of(start)} is {type_}.")
    if t.is_integer(type_):
        length = types.INT64
    elif types.is_number(type_):
        length = types.DOUBLE if t.is_floating(type_) else pa.decimal128(38, type_.scale)
    else:
        length = pa.duration("s" if t.is_date(type_) else type_.unit)
    return Aggregate(name, "coverage", start, length, end)


def _not_one(text: str, tree: exp.Expr, in_process: bool = False) -> str:
    if isinstance(tree, exp.Alias):
        return f"{text}: the name of an aggregate is its key in the dict; leave out AS."
    if tree.find(*FUNCTIONS):
        return f"{text}: not a single aggregate. Give {KNOWN}, and compute with the results."
    return f"{text}: unknown aggregate. Supported are {IN_PROCESS if in_process or type(tree) in CHOSEN else KNOWN}."


def _value(text: str, tree: exp.Expr, binder: Binder) -> Expression:
    value = binder.bind(Translator(binder.schemas).condition(tree))
    if len(sides_of(value)) > 1:
        raise ConditionError(
            f"{text}: an aggregate takes an expression over one side, and this one reads both. "
            "Aggregate each side by itself, or join and aggregate the result."
        )
    evaluate(value, *(empty_batch(schema) for schema in binder.schemas))  # fails now if it cannot be evaluated
    return value


def _result_type(text: str, function: Function, value: Expression) -> pa.DataType:
    type_ = type_of(value)
    if function == "count":
        return types.INT64
    refuse_period(text, value)
    if function in ("min", "max"):
        refuse_order(text, value)
        if t.is_nested(type_) or t.is_null(type_):
            raise ConditionError(f"{text}: {type_} has no smallest and largest value. Cast it, or take a field of it.")
        return type_
    if not types.is_number(type_):
        raise ConditionError(f"{text}: {function} needs a number, and {text_of(value)} is {type_}. Cast it.")
    if not t.is_decimal(type_):
        return types.INT64 if function == "sum" and t.is_integer(type_) else types.DOUBLE
    if type_.precision > types.MOST_DIGITS:
        raise ConditionError(
            f"{text}: decimals of more than {types.MOST_DIGITS} digits cannot be added up, and {text_of(value)} is "
            f"{type_}. Cast it."
        )
    more, scale = (10, type_.scale) if function == "sum" else (4, type_.scale + 4)
    return pa.decimal128(min(type_.precision + more, types.MOST_DIGITS), min(scale, types.MOST_DIGITS))


def parse_by(
    by: str | Sequence[str] | None, left_schema: pa.Schema, right_schema: pa.Schema, zone: str | None = None
) -> tuple[GroupColumn, ...]:
    """The columns to group by, all of one side. None: no groups, one result for all pairs."""
    if by is None:
        return ()
    texts: Any = [by] if isinstance(by, str) else by
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(f"by is a column such as 'l.region', or a list of columns, or None; got {by!r}.")
    binder = Binder((left_schema, right_schema), zone)
    columns = tuple(_group_column(text, binder) for text in texts)
    if len({column.side for column in columns}) > 1:
        raise InputError(
            f"by={list(texts)} names columns of both sides, and groups are made of columns of one. "
            "Group by one side, or join and group the result."
        )
    return columns


def _group_column(text: str, binder: Binder) -> GroupColumn:
    column = _column(text, binder)
    type_ = types.plain(type_of(column))
    if t.is_nested(type_) and types.common(type_, type_) is None:
        raise InputError(f"by={text!r} is {column.type}, which cannot be grouped by. Make a plain column of it.")
    return GroupColumn(column.name, column.side, binder.bind(column))


def _column(text: str, binder: Binder) -> Column:
    if any(text in schema.names for schema in binder.schemas):
        return names.resolve_unqualified(text, binder.schemas)
    if text.strip():
        found = Translator(binder.schemas).expression(parse_text(text, "column to group by"))
        if isinstance(found, Column):
            return found
    raise InputError(f"by={text!r} is not a column. Compute it as a column of the table first, then group by that.")


def check_aggregated(how: str, by: Sequence[GroupColumn]) -> JoinType:
    """The join type, checked to support aggregates."""
    read = JoinType.read(how)
    if read not in (JoinType.INNER, JoinType.LEFT):
        raise InputError(
            "aggregates are over the pairs of an inner join, or of how='left' with rows that have none; "
            f"got how={how!r}."
        )
    if read is JoinType.LEFT and any(column.side is Side.RIGHT for column in by):
        raise InputError(
            f"how='left' has a row for each group of left rows, and by names {by[0].name!r} of the right side. "
            "Group by columns of the left side, or exchange the inputs."
        )
    return read


def check_names(by: Sequence[GroupColumn], aggregates: Sequence[Aggregate]) -> None:
    """Check that columns of the result have different names."""
    seen: set[str] = set()
    for name in [*(column.name for column in by), *(aggregate.name for aggregate in aggregates)]:
        if name in seen:
            raise InputError(f"the result would have two columns called {name!r}: rename an aggregate.")
        seen.add(name)


class OrderKey(NamedTuple):
    """An expression over one side, and the direction of the order."""

    value: Expression
    side: Side
    descending: bool
    nulls_first: bool


def parse_order(
    order_by: OrderBy,
    left_schema: pa.Schema,
    right_schema: pa.Schema,
    zone: str | None = None,
    in_process: bool = True,
    trusted: bool = False,
) -> tuple[OrderKey, ...]:
    """The keys, bound to the two schemas. As in Spark, nulls come first in ascending order and last in descending.

    Trusted text may call every function of Spark.
    """
    texts: Any = [order_by] if isinstance(order_by, str) else order_by
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(
            f"order_by is SQL text such as 'l.x' or 'r.y DESC NULLS LAST', or a list of these; got {order_by!r}."
        )
    binder = Binder((left_schema, right_schema), zone)
    return tuple(_order_key(text, binder, in_process, trusted) for text in texts)


def _order_key(text: str, binder: Binder, in_process: bool, trusted: bool) -> OrderKey:
    found = DIRECTION.match(text)
    assert found is not None  # the pattern matches any text
    expression, direction, nulls = found.groups()
    value = binder.bind(Translator(binder.schemas, trusted).condition(parse_text(expression, "order")))
    sides = sides_of(value)
    if len(sides) != 1:
        raise ConditionError(f"order_by={text!r} reads {len(sides)} sides: order by an expression over one of them.")
    value = ordered_key(value, binder.schemas)
    if pa.types.is_nested(type_of(value)):
        value = sort_key(value)
    if in_process or not is_opaque(value):
        evaluate(value, *(empty_batch(schema) for schema in binder.schemas))  # fails now if it cannot be evaluated
    descending = (direction or "").lower() == "desc"
    nulls_first = not descending if nulls is None else nulls.lower() == "first"
    return OrderKey(value, next(iter(sides)), descending, nulls_first)
