"""Reads Columns of Spark Connect sessions: trees of Python objects that the server has not seen yet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql.connect import expressions as e
from pyspark.sql.connect.column import Column as ConnectColumn
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DayTimeIntervalType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from dovetail.condition import quote_name
from dovetail.core.rows import Side
from dovetail.spark.frames.column_names import (
    CONNECTIVES,
    Names,
    Sql,
    ambiguous,
    call,
    case,
    cast,
    chain,
    extract,
    foreign,
    function_of,
    literal,
    months,
    name_parts,
    python_function,
    unknown_node,
    unreadable,
)
from dovetail.spark.versions import types_named

OTHERS = (ArrayType, MapType, StructType, *types_named("TimeType"))

EPOCH = datetime(1970, 1, 1)


class ConnectReader:
    def __init__(self, names: Names) -> None:
        self.names = names

    def read(self, node: e.Expression) -> Sql:
        match node:
            case e.ColumnReference():
                return self._reference(node)
            case e.SQLExpression():
                return self.names.in_text(node._expr)
            case e.LiteralExpression():
                return _constant(node._value, node._dataType)
            case e.UnresolvedFunction() | e.CallFunction():
                name = node._name
                operands = chain(node, partial(_args, name)) if name in CONNECTIVES else node._args
                return call(name, [self.read(arg) for arg in operands])
            case e.ColumnAlias():
                return self.read(node._child)
            case e.CastExpression():
                type_ = node._data_type
                name = type_.simpleString() if isinstance(type_, DataType) else type_
                return cast(self.read(node._expr), name, node._eval_mode == "try")
            case e.CaseWhen():
                branches = [(self.read(when), self.read(then)) for when, then in node._branches]
                return case(branches, self.read(node._else_value) if node._else_value is not None else None)
            case e.UnresolvedExtractValue():
                key = node._extraction
                value = key._value if isinstance(key, e.LiteralExpression) else None
                return extract(self.read(node._child), self.read(key), value if isinstance(value, str) else None)
            case e.LambdaFunction():
                return function_of([v._name_parts[0] for v in node._arguments], self.read(node._function))
            case e.UnresolvedNamedLambdaVariable():
                return Sql(quote_name(node._name_parts[0]))
            case e.CommonInlineUserDefinedFunction():
                raise python_function(node._function_name)
        raise unknown_node(type(node).__name__)

    def _reference(self, node: e.ColumnReference) -> Sql:
        parts = name_parts(node._unparsed_identifier)
        if node._plan_id is None:
            return self.names.anywhere(parts)
        return self.names.column_of(self._side(node), parts)

    def _side(self, node: e.ColumnReference) -> Side:
        """The DataFrame that the column was taken from, else the one derived from that DataFrame."""
        plans: list[Any] = [frame._plan for frame in self.names.frames]
        taken = [side for side in Side if plans[side]._plan_id == node._plan_id]
        having = taken or [side for side in Side if self.names.is_in(side, ConnectColumn(node))]
        if len(having) == 1:
            return having[0]
        raise ambiguous(node._unparsed_identifier) if having else foreign(node._unparsed_identifier)


def _args(name: str, node: e.Expression) -> list[e.Expression] | None:
    """The arguments of a call of this function."""
    return list(node._args) if isinstance(node, e.UnresolvedFunction) and node._name == name else None


def _constant(value: Any, type_: DataType) -> Sql:
    """A constant. Connect stores times as numbers."""
    if isinstance(type_, OTHERS):
        raise unreadable(f"a constant of type {type_.simpleString()}")
    if value is None:
        return literal(None)
    if isinstance(type_, YearMonthIntervalType):
        return months(value)
    for kind, convert in CONVERSIONS.items():
        if isinstance(type_, kind):
            return literal(convert(value))
    return literal(value)


CONVERSIONS: dict[type[DataType], Callable[[Any], Any]] = {
    DateType: lambda days: date(1970, 1, 1) + timedelta(days=days),
    TimestampType: lambda micros: EPOCH.replace(tzinfo=UTC) + timedelta(microseconds=micros),
    TimestampNTZType: lambda micros: EPOCH + timedelta(microseconds=micros),
    DayTimeIntervalType: lambda micros: timedelta(microseconds=micros),
}
