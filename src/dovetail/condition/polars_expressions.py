"""Polars expressions as conditions, as in `join_where`: pl.col("x") <= pl.col("y").

A name refers to a left column; else to a right one; else, without the suffix, to the right column of a name that both
sides have. Expressions are read from Polars' JSON, which has Polars' own names. Anything with no or another meaning in
SQL is refused, for example division of integers by // and %, which round differently.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dovetail.condition import types
from dovetail.condition.expression import Call, Column, Expression, Literal, connect
from dovetail.condition.literals import duration_literal
from dovetail.condition.names import Schemas, list_names, resolve
from dovetail.core.rows import Side
from dovetail.errors import ConditionError
from dovetail.request import PolarsCondition

INSTEAD = "Write the condition as SQL text, such as on='l.x <= r.y'"
OPERATORS = {
    "Eq": "=",
    "NotEq": "!=",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
    "EqValidity": "<=>",
    "Plus": "+",
    "Minus": "-",
    "Multiply": "*",
    "TrueDivide": "/",
    "And": "and",
    "Or": "or",
}
FUNCTIONS = {"Abs": "abs", "Negate": "neg"}
TEXT_FUNCTIONS = {"Lowercase": "lower", "Uppercase": "upper", "LenChars": "length"}
BOOLEANS = {"Not": "not", "IsNull": "is_null"}
CASTS = {
    **{f"Int{bits}": pa.int64() if bits == 64 else getattr(pa, f"int{bits}")() for bits in (8, 16, 32, 64)},
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "String": types.STRING,
    "Date": types.DATE,
    "Boolean": types.BOOLEAN,
}
CLOSED = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
UNITS = {"Nanoseconds": 1000, "Microseconds": 1, "Milliseconds": 1000}
EPOCH = datetime(1970, 1, 1)


def read_polars(condition: PolarsCondition, schemas: Schemas) -> Expression:
    """The condition as an expression over both sides."""
    try:
        tree = json.loads(condition.expression.meta.serialize(format="json"))
    except Exception as error:  # Polars cannot serialise Python functions
        raise ConditionError(f"the Polars expression {condition.expression} cannot be read. {INSTEAD}.") from error
    return _Reader(condition, schemas).read(tree)


class _Reader:
    def __init__(self, condition: PolarsCondition, schemas: Schemas) -> None:
        self._condition = condition
        self._schemas = schemas

    def read(self, node: Any) -> Expression:
        if not isinstance(node, dict) or len(node) != 1:
            raise self._unknown(node)
        ((kind, body),) = node.items()
        match kind:
            case "Column":
                return self._column(body)
            case "Alias":
                return self.read(body[0])
            case "Literal":
                return self._literal(body)
            case "BinaryExpr" if body["op"] in OPERATORS:
                return self._binary(OPERATORS[body["op"]], self.read(body["left"]), self.read(body["right"]))
            case "BinaryExpr" if body["op"] == "NotEqValidity":
                return Call("not", (Call("<=>", (self.read(body["left"]), self.read(body["right"]))),))
            case "Cast" if (target := CASTS.get(_only(body["dtype"]))) is not None:
                return Call("cast", (self.read(body["expr"]),), target)
            case "BinaryExpr":
                raise self._unknown(body["op"])
            case "Function":
                return self._function(body["function"], body["input"])
        raise self._unknown(kind)

    def _binary(self, function: str, left: Expression, right: Expression) -> Expression:
        parts = [left, right]
        if function in ("and", "or"):  # one call, so that a long chain is not a deep tree
            flat = [a for p in parts for a in (p.args if isinstance(p, Call) and p.function == function else (p,))]
            return connect(function, flat)
        return Call(function, tuple(parts))

    def _column(self, name: str) -> Column:
        left, right = self._schemas
        if name in left.names:
            return resolve(Side.LEFT, name, self._schemas)
        if name in right.names:
            return resolve(Side.RIGHT, name, self._schemas)
        bare = name.removesuffix(self._condition.suffix)
        if bare != name and bare in left.names and bare in right.names:
            return resolve(Side.RIGHT, bare, self._schemas)
        raise ConditionError(
            f"pl.col({name!r}): no such column. The left input has: {list_names(left.names)}. The right input has: "
            f"{list_names(right.names)}; a right column with the name of a left one ends with "
            f"{self._condition.suffix!r}."
        )

    def _literal(self, body: Any) -> Expression:
        ((kind, value),) = body.items()
        if kind == "Dyn":
            ((kind, value),) = value.items()
            return self._number(value, kind)
        ((kind, value),) = value.items()
        match kind:
            case "Null":
                return Literal(None, pa.null())
            case "Boolean":
                return Literal(value, types.BOOLEAN)
            case "String":
                return Literal(value, types.STRING)
            case "Date":
                return Literal(date(1970, 1, 1) + timedelta(days=value), types.DATE)
            case "Datetime" if value[2] is None:
                return Literal(EPOCH + timedelta(microseconds=self._micros(value)), pa.timestamp("us"))
            case "Duration":
                return duration_literal(self._micros(value))
            case "Decimal":
                scaled, precision, scale = value
                return Literal(Decimal(scaled).scaleb(-scale), pa.decimal128(precision, scale))
        if isinstance(value, int | float) and kind[:3] in ("Int", "UIn", "Flo"):
            return self._number(value, kind)
        raise self._unknown(f"a constant of type {kind}")

    def _number(self, value: Any, kind: str) -> Literal:
        if isinstance(value, float) or kind.startswith("Float"):
            return Literal(float(value), types.DOUBLE)
        if not -(2**63) <= value < 2**63:
            raise self._unknown("a constant of more than 64 bits")
        return Literal(value, pa.int32() if -(2**31) <= value < 2**31 else types.INT64)

    def _micros(self, value: Sequence[Any]) -> int:
        amount, unit = value[0], value[1]
        if unit == "Nanoseconds" and amount % UNITS[unit]:
            raise self._unknown("a constant in nanoseconds")
        return int(amount) // 1000 if unit == "Nanoseconds" else int(amount) * UNITS[unit]

    def _function(self, function: Any, given: Sequence[Any]) -> Expression:
        ((family, name),) = function.items() if isinstance(function, dict) else ((None, function),)
        match family, name:
            case None, str() if name in FUNCTIONS:
                return self._call(FUNCTIONS[name], given)
            case "StringExpr", str() if name in TEXT_FUNCTIONS:
                return self._call(TEXT_FUNCTIONS[name], given)
            case "Boolean", str() if name in BOOLEANS:
                return self._call(BOOLEANS[name], given)
            case "Boolean", "IsNotNull":
                return Call("not", (self._call("is_null", given),))
            case "Boolean", {"IsBetween": {"closed": str() as closed}}:
                value, low, high = map(self.read, given)
                bounds: tuple[str, str] = CLOSED[closed]
                return Call("and", (Call(bounds[0], (value, low)), Call(bounds[1], (value, high))))
            case "Boolean", {"IsIn": {"nulls_equal": False}} if "List" in given[1].get("Literal", {}).get("Scalar", {}):
                values = pa.ipc.open_stream(bytes(given[1]["Literal"]["Scalar"]["List"])).read_all().column(0)
                constants = [Literal(value.as_py(), types.plain(value.type)) for value in values]
                return Call("in", (self.read(given[0]), *constants)) if constants else Literal(False, types.BOOLEAN)
        raise self._unknown(name if family is None else f"{family} {_only(name)}")

    def _call(self, function: str, given: Sequence[Any]) -> Call:
        return Call(function, tuple(map(self.read, given)))

    def _unknown(self, what: Any) -> ConditionError:
        return ConditionError(
            f"{_only(what)} in the Polars expression {self._condition.expression} has no translation. {INSTEAD}."
        )


def _only(found: Any) -> str:
    """The name of a node, which may have a body."""
    if isinstance(found, dict) and len(found) == 1:
        ((name, body),) = found.items()
        return _only(body) if name == "Literal" else str(name)
    return str(found)
