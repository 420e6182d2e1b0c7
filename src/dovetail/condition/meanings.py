"""Columns that are stored as another type: ordered categoricals as text, pandas' periods as numbers.

    ordered categorical   =, != and IN by value; <, <=, >, >= by category order; both sides need the same categories
    period                compared among periods of one frequency, by their ordinal numbers

Other uses are refused: stored values would be compared silently, and wrongly.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dovetail.condition import types
from dovetail.condition.expression import COMPARISONS, Call, Column, Expression, Literal, type_of
from dovetail.condition.functions import FUNCTIONS, Kind
from dovetail.condition.render import text_of
from dovetail.core.categories import is_ordered, order_of
from dovetail.errors import ConditionError

ORDERING = frozenset({"<", "<=", ">", ">=", "overlaps"})
EXTREMES = frozenset({"greatest", "least"})
CHOICES = frozenset({"case", *(f.name for f in FUNCTIONS.values() if Kind.COMMON in f.takes)})
"""Functions that return one of their arguments."""
SHOWN = 8  # categories in an error message

Schemas = tuple[pa.Schema, pa.Schema]


def as_stored(arg: Expression) -> Expression:
    """An explicit cast: the values as they are stored."""
    return Call("coalesce", (arg,), arg.type) if _holds_order(arg) else arg


def with_meaning(function: str, args: Sequence[Expression], schemas: Schemas) -> tuple[Expression, ...]:
    """The arguments of a function, bound to what it computes with."""
    if any(_is_period(arg) for arg in args):
        return _periods(function, args)
    if function in ORDERING and any(_holds_order(arg) for arg in args):
        return _ranks(function, args, schemas)
    if function in EXTREMES and any(_holds_order(arg) for arg in args):
        raise _has_order(next(arg for arg in args if _holds_order(arg)), f"{_written(function, args)} compares values")
    return tuple(args)


def refuse_period(text: str, value: Expression) -> None:
    """Refuse an aggregate of a period."""
    if _is_period(value):
        raise _only_among_periods(value, text)


def refuse_order(text: str, value: Expression) -> None:
    """Refuse the smallest and largest of an ordered categorical."""
    if _holds_order(value):
        raise _has_order(value, f"{text} compares values")


def ordered_key(value: Expression, schemas: Schemas) -> Expression:
    """The key that rows are sorted by: ordered categoricals by the order of their categories."""
    column = _column(value)
    return value if column is None or not is_ordered(type_of(column)) else _rank(column, value, schemas)


def _column(arg: Expression) -> Column | None:
    """The column, if the expression is just a column."""
    match arg:
        case Column():
            return arg
        case Call("cast", (Column() as column,), target) if target == types.plain(type_of(column)):
            return column
    return None


# Periods.


def _is_period(arg: Expression) -> bool:
    column = _column(arg)
    return column is not None and types.is_period(column.type)


def _periods(function: str, args: Sequence[Expression]) -> tuple[Expression, ...]:
    if function == "is_null":
        return tuple(args)
    kinds = {column.type for arg in args if (column := _column(arg)) is not None and types.is_period(column.type)}
    if function not in COMPARISONS | {"in"} or len(kinds) > 1 or not all(_is_period(arg) for arg in args):
        raise _only_among_periods(next(arg for arg in args if _is_period(arg)), _written(function, args))
    return tuple(Column(column.side, column.name, type_of(arg)) for arg in args if (column := _column(arg)) is not None)


def _only_among_periods(arg: Expression, text: str) -> ConditionError:
    column = _column(arg)
    assert column is not None
    name, frequency = text_of(arg), getattr(column.type, "freq", "")
    return ConditionError(
        f"{text}: {name} is a column of pandas periods ({frequency}), which are compared with periods of the same "
        f"frequency only. Make timestamps of them before the join: frame[{column.name!r}].dt.to_timestamp()."
    )


# Ordered categoricals.


def _holds_order(arg: Expression) -> bool:
    """Whether the expression can return values of an ordered categorical."""
    column = _column(arg)
    if column is not None:
        return is_ordered(type_of(column))
    match arg:
        case Call("coalesce", (_,)):  # cast explicitly
            return False
        case Call("case", args):
            return any(map(_holds_order, (*args[1:-1:2], args[-1])))
        case Call(function, args) if function in CHOICES:
            return any(map(_holds_order, args))
    return False


def _ranks(function: str, args: Sequence[Expression], schemas: Schemas) -> tuple[Expression, ...]:
    text = _written(function, args)
    columns = [column for arg in args if (column := _column(arg)) is not None and is_ordered(type_of(column))]
    if not columns:
        raise _has_order(next(arg for arg in args if _holds_order(arg)), f"{text} compares values")
    orders = [_categories(column, schemas) for column in columns]
    for column, order in zip(columns[1:], orders[1:], strict=True):
        if not order.equals(orders[0]):
            differ = f"{text}: the categories differ ({_listed(orders[0])}, and {_listed(order)})"
            raise _has_order(column, differ)
    places = {value: place for place, value in enumerate(orders[0].to_pylist())}
    found: list[Expression] = []
    for arg in args:
        column = _column(arg)
        if column is not None and is_ordered(type_of(column)):
            found.append(_rank(column, arg, schemas))
        elif isinstance(arg, Literal):
            if arg.value is not None and arg.value not in places:
                raise ConditionError(
                    f"{text}: {text_of(arg)} is none of the categories of {text_of(columns[0])}: {_listed(orders[0])}."
                )
            found.append(Literal(None if arg.value is None else places[arg.value], pa.int32()))
        else:
            raise _has_order(columns[0], f"{text}: {text_of(arg)} is not in the order of these categories")
    return tuple(found)


def _rank(column: Column, value: Expression, schemas: Schemas) -> Expression:
    """The position of a value among the categories."""
    order = _categories(column, schemas)
    type_ = types.plain(order.type)
    return Call("place", (value, *(Literal(one, type_) for one in order.to_pylist())), pa.int32())


def _categories(column: Column, schemas: Schemas) -> pa.Array:
    order = order_of(schemas[column.side].field(column.name))
    if order is None:
        raise _has_order(column, f"the categories of {text_of(column)} are not known before its rows are read")
    return order.cast(types.plain(order.type)) if order.type != types.plain(order.type) else order


def _has_order(arg: Expression, problem: str) -> ConditionError:
    name = text_of(arg)
    return ConditionError(
        f"{problem}; {name} is an ordered categorical. Compare it with a table's column of the same categories, or "
        f"with one of them; or compare values, whatever their order: CAST({name} AS {types.spark_name(type_of(arg))})."
    )


def _written(function: str, args: Sequence[Expression]) -> str:
    return text_of(args[0] if function == "cast" else Call(function, tuple(args), types.BOOLEAN))


def _listed(order: pa.Array) -> str:
    names = [str(value) for value in order.slice(0, SHOWN).to_pylist()]
    return " < ".join([*names, "…"] if len(order) > SHOWN else names)
