"""Reads Columns of classic sessions: trees of ColumnNodes in the JVM, read through py4j."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

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
    field,
    foreign,
    function_of,
    literal,
    months,
    python_function,
    unknown_node,
    unreadable,
)

DATASET_ID = "__dataset_id"  # where Spark stores the DataFrame that a column was taken from


class ClassicReader:
    def __init__(self, names: Names) -> None:
        self.names = names

    def read(self, node: Any) -> Sql:
        match kind := _kind(node):
            case "ExpressionColumnNode":
                return self._resolve_column(node.expression())
            case "UnresolvedAttribute":
                return self.names.anywhere(list(_each(node.nameParts())))
            case "SqlExpression":
                return self.names.in_text(node.expression())
            case "Literal":
                return _constant(node.value())
            case "UnresolvedFunction":
                name = node.functionName()
                operands = chain(node, partial(_args, name)) if name in CONNECTIVES else _each(node.arguments())
                return call(name, [self.read(arg) for arg in operands])
            case "Alias" | "LazyExpression":
                return self.read(node.child())
            case "Cast":
                is_try = node.evalMode().isDefined() and "Try" in node.evalMode().get().toString()
                return cast(self.read(node.child()), node.dataType().sql(), is_try)
            case "CaseWhenOtherwise":
                branches = [(self.read(b._1()), self.read(b._2())) for b in _each(node.branches())]
                otherwise = node.otherwise()
                return case(branches, self.read(otherwise.get()) if otherwise.isDefined() else None)
            case "UnresolvedExtractValue":
                key = node.extraction()
                value = key.value() if _kind(key) == "Literal" else None
                return extract(self.read(node.child()), self.read(key), value if isinstance(value, str) else None)
            case "LambdaFunction":
                return function_of([v.name() for v in _each(node.arguments())], self.read(node.function()))
            case "UnresolvedNamedLambdaVariable":
                return Sql(quote_name(node.name()))
            case "InvokeInlineUserDefinedFunction":
                raise unreadable("a function without a name")
        raise unknown_node(kind)

    def _resolve_column(self, expression: Any) -> Sql:
        """A column taken from a DataFrame, already resolved by Spark."""
        match kind := _kind(expression):
            case "AttributeReference":
                return self.names.column_of(self._side(expression), [expression.name()])
            case "Alias":
                return self._resolve_column(expression.child())
            case "GetStructField":
                return field(self._resolve_column(expression.child()), expression.extractFieldName())
            case "PythonUDF" | "PythonUDAF":
                raise python_function(expression.name())
        raise unknown_node(kind)

    def _side(self, attribute: Any) -> Side:
        frames = [frame._jdf for frame in self.names.frames]
        origin = attribute.metadata().getLong(DATASET_ID) if attribute.metadata().contains(DATASET_ID) else None
        by_origin = [side for side in Side if frames[side].id() == origin]
        if len(by_origin) == 1:
            return by_origin[0]
        having = [side for side in Side if frames[side].queryExecution().analyzed().outputSet().contains(attribute)]
        if len(having) == 1:
            return having[0]
        raise ambiguous(attribute.name()) if having else foreign(attribute.name())


def _args(name: str, node: Any) -> list[Any] | None:
    """The arguments of a call of this function."""
    is_call = _kind(node) == "UnresolvedFunction" and node.functionName() == name
    return list(_each(node.arguments())) if is_call else None


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _each(sequence: Any) -> Iterator[Any]:
    """The items of a Scala sequence."""
    return (sequence.apply(position) for position in range(sequence.size()))


def _constant(value: Any) -> Sql:
    if value is None or isinstance(value, bool | int | float | str) or not hasattr(value, "getClass"):
        return literal(bytes(value) if isinstance(value, bytearray) else value)
    match kind := _kind(value):
        case "Date" | "LocalDate":
            return literal(date.fromisoformat(value.toString()))
        case "Timestamp":
            return _constant(value.toInstant())
        case "Instant":
            seconds = timedelta(seconds=value.getEpochSecond(), microseconds=value.getNano() // 1000)
            return literal(datetime(1970, 1, 1, tzinfo=UTC) + seconds)
        case "LocalDateTime":
            return literal(datetime.fromisoformat(value.toString()))
        case "Duration":
            return literal(timedelta(seconds=value.getSeconds(), microseconds=value.getNano() // 1000))
        case "Period":
            return months(value.toTotalMonths())
    raise unreadable(f"a constant of the Java type {kind}")
