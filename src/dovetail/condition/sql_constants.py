"""Types and intervals as sqlglot's tree spells them."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from dovetail.condition import literals, types
from dovetail.errors import ConditionError

TYPES: dict[exp.DType, pa.DataType] = {
    exp.DType.BOOLEAN: pa.bool_(),
    exp.DType.TINYINT: pa.int8(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: pa.int32(),
    exp.DType.BIGINT: pa.int64(),
    exp.DType.FLOAT: pa.float32(),
    exp.DType.DOUBLE: pa.float64(),
    exp.DType.TEXT: pa.string(),
    exp.DType.BINARY: pa.binary(),
    exp.DType.DATE: pa.date32(),
    exp.DType.TIMESTAMP: types.SESSION_TIMESTAMP,
    exp.DType.TIMESTAMPTZ: types.SESSION_TIMESTAMP,
    exp.DType.TIMESTAMPLTZ: types.SESSION_TIMESTAMP,
    exp.DType.TIMESTAMPNTZ: pa.timestamp("us"),
}


def unsigned(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Neg) else node


def interval_of(node: exp.Expr) -> literals.Interval | None:
    """The interval that a node is, if it is one with constant amounts."""
    if isinstance(node, exp.Add):  # INTERVAL 1 DAY 2 HOURS
        first, second = interval_of(node.this), interval_of(node.expression)
        if first is None or second is None:
            return None
        return literals.Interval(first.months + second.months, first.micros + second.micros)
    if not isinstance(node, exp.Interval):
        return None
    amount, unit = node.this, node.args.get("unit")
    if not isinstance(unsigned(amount), exp.Literal):
        return None
    text = amount.name if isinstance(amount, exp.Literal) else f"-{amount.this.name}"
    if unit is None:
        return literals.interval_of_text(text)
    if isinstance(unit, exp.IntervalSpan):
        return literals.interval_span(text, unit.this.name, unit.expression.name)
    return literals.interval(text, unit.name)


def arrow_type(node: exp.DataType) -> pa.DataType | None:
    if node.this == exp.DType.DECIMAL:
        numbers = [int(p.name) for p in node.expressions]
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        if not 1 <= precision <= types.MOST_DIGITS or not 0 <= scale <= precision:
            raise ConditionError(f"DECIMAL({precision},{scale}): at most {types.MOST_DIGITS} digits.")
        return pa.decimal128(precision, scale)
    return TYPES.get(node.this)
