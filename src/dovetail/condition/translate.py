"""Translates sqlglot's tree to ours. Some constructs are refused; those that only Spark knows become opaque."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from dovetail.condition import literals, names, types
from dovetail.condition.casts import can_cast
from dovetail.condition.dialect import refuse, refuse_symbols, spark_text
from dovetail.condition.expression import Call, Column, Expression, Literal, Opaque, connect
from dovetail.condition.functions import FUNCTIONS, SPELLED, TRUNCATIONS, Function, Kind
from dovetail.condition.spark_functions import refuse_calls
from dovetail.core.rows import Side
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


def strip_sign(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Neg) else node


def _is_constant(node: exp.Expr) -> bool:
    return isinstance(strip_sign(node), exp.Literal)


def interval_of(node: exp.Expr) -> literals.CalendarInterval | None:
    """The interval that a node represents, if its amounts are constant."""
    if isinstance(node, exp.Add):  # INTERVAL 1 DAY 2 HOURS
        first, second = interval_of(node.this), interval_of(node.expression)
        if first is None or second is None:
            return None
        return literals.CalendarInterval(first.months + second.months, first.micros + second.micros)
    if not isinstance(node, exp.Interval):
        return None
    amount, unit = node.this, node.args.get("unit")
    if not _is_constant(amount):
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


t = pa.types

BINARY: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
    exp.Mod: "%",
    exp.And: "and",
    exp.Or: "or",
}
UNARY: dict[type[exp.Expr], str] = {
    exp.Not: "not",
    exp.Neg: "neg",
}
TRUNCATION_NAMES = {"yyyy": "year", "yy": "year", "mon": "month", "mm": "month", "dd": "day"}
CAST_NAMES = {"tinyint": pa.int8(), "smallint": pa.int16(), "bigint": pa.int64(), "decimal": pa.decimal128(10, 0)}
ISNULL_NAMES = {"isnull": True, "isnotnull": False}


def side_of(alias: str) -> Side | None:
    return {"l": Side.LEFT, "r": Side.RIGHT}.get(alias.lower())


class Translator:
    """Translates one condition. With `trusted`, opaque parts may call any function; else only listed ones."""

    def __init__(self, schemas: names.Schemas, trusted: bool = False) -> None:
        self.schemas = schemas
        self.trusted = trusted

    def condition(self, tree: exp.Expr) -> Expression:
        refuse(tree)
        return self.expression(tree)

    def expression(self, node: exp.Expr) -> Expression:
        kind = type(node)
        if kind in BINARY:
            return self._binary(node)
        if kind in UNARY:
            return self._call(UNARY[kind], node.this)
        if kind in HANDLERS:
            return HANDLERS[kind](self, node)
        return self._opaque(node)

    def _call(self, function: str, *nodes: exp.Expr) -> Call:
        return Call(function, tuple(self.expression(node) for node in nodes))

    def _opaque(self, node: exp.Expr) -> Expression:
        """Text for Spark, with columns spelled as in the schemas."""
        node = node.copy()
        bound = {p.name for lam in node.find_all(exp.Lambda) for p in lam.expressions}
        columns = []
        for part in list(node.find_all(exp.Column)):
            if part.name in bound and not part.table:
                continue
            column, fields = self._resolve_name(part)
            columns.append(column)
            spelled: exp.Expr = exp.column(exp.to_identifier(column.name, quoted=True), column.side.alias)
            for field in fields:
                spelled = exp.Dot(this=spelled, expression=exp.to_identifier(field, quoted=True))
            if part is node:
                node = spelled
            else:
                part.replace(spelled)
        sql = spark_text(node)
        if not self.trusted:
            refuse_calls(sql)
        return Opaque(sql, tuple(dict.fromkeys(columns)))

    # Names

    def _resolve_name(self, node: exp.Column) -> tuple[Column, list[str]]:
        """The column and the struct fields that a dotted name refers to."""
        parts = [part.name for part in node.parts]
        side = side_of(parts[0]) if len(parts) > 1 else None
        if side is not None:
            return names.resolve(side, parts[1], self.schemas), parts[2:]
        if len(parts) > 1 and not any(names.candidates(schema, parts[0]) for schema in self.schemas):
            dotted = ".".join(parts)
            raise ConditionError(f"{dotted}: unknown alias {parts[0]}. The left input is l, the right one r.")
        return names.resolve_unqualified(parts[0], self.schemas), parts[1:]

    def _column(self, node: exp.Expr) -> Expression:
        assert isinstance(node, exp.Column)
        column, fields = self._resolve_name(node)
        value: Expression = column
        for field in fields:
            value = _field(value, field)
        return value

    def _dot(self, node: exp.Expr) -> Expression:
        if isinstance(node.this, (exp.Column, exp.Dot)) and isinstance(node.expression, exp.Identifier):
            return _field(self.expression(node.this), node.expression.name)
        return self._opaque(node)

    # Constants

    def _literal(self, node: exp.Expr) -> Expression:
        if node.args.get("is_string"):
            return Literal(node.this, types.STRING)
        return literals.number_literal(node.this)

    def _boolean(self, node: exp.Expr) -> Expression:
        return Literal(bool(node.this), types.BOOLEAN)

    def _null(self, node: exp.Expr) -> Expression:
        return Literal(None, pa.null())

    def _hex(self, node: exp.Expr) -> Expression:
        return Literal(bytes.fromhex(node.this), pa.binary())

    def _interval(self, node: exp.Expr) -> Expression:
        found = interval_of(node)
        if found is None:
            return self._opaque(node)
        if found.months:
            raise ConditionError("an interval of months or years can only be added to a date or a timestamp.")
        return literals.duration_literal(found.micros)

    # Operators

    def _binary(self, node: exp.Expr) -> Expression:
        left, right = node.this, node.expression
        function = BINARY[type(node)]
        if isinstance(node, exp.And | exp.Or):
            return self._logic(function, node)
        if isinstance(node, exp.Predicate):
            refuse_symbols(node)
        if isinstance(left, exp.Tuple) and isinstance(right, exp.Tuple):
            return self._tuples(function, left, right)
        if function in "+-":
            if (moved := self._plus_interval(function, left, right)) is not None:
                return moved
            if function == "+" and (moved := self._plus_interval(function, right, left)) is not None:
                return moved
        found = self._call(function, left, right)
        if isinstance(node, exp.Predicate) and found.args[0] == found.args[1] and isinstance(found.args[0], Column):
            self._refuse_itself(node, found.args[0])
        return found

    def _refuse_itself(self, node: exp.Expr, column: Column) -> None:
        """Refuse a comparison of a column with itself, where one of the two has no l. or r.: a prefix is missing."""
        if any(isinstance(part, exp.Column) and not part.table for part in (node.this, node.expression)):
            one, other = column.side.alias, column.side.other.alias
            raise ConditionError(
                f"{spark_text(node)} compares {one}.{column.name} with itself: {other} has no column {column.name}. "
                f"Write {other}. and the name of the column that is meant."
            )

    def _logic(self, function: str, node: exp.Expr) -> Expression:
        """All operands of a chain in one call, however many there are."""
        operands: list[Expression] = []
        waiting = [node]
        while waiting:
            part = waiting.pop()
            inner = part.unnest()
            if type(inner) is type(node):
                waiting += [inner.expression, inner.this]
            else:
                operands.append(self.expression(inner))
        return Call(function, tuple(operands))

    def _plus_interval(self, function: str, point: exp.Expr, node: exp.Expr) -> Expression | None:
        """An expression ± an interval that contains months."""
        found = interval_of(node)
        if found is None or not found.months:
            return None
        sign = 1 if function == "+" else -1
        moved: Expression = Call("add_months", (self.expression(point), Literal(sign * found.months, pa.int32())))
        return Call(function, (moved, literals.duration_literal(found.micros))) if found.micros else moved

    def _tuples(self, function: str, left: exp.Tuple, right: exp.Tuple) -> Expression:
        if len(left.expressions) != len(right.expressions):
            raise ConditionError(f"cannot compare {spark_text(left)} with {spark_text(right)}: they differ in length.")
        pairs = [
            (self.expression(a), self.expression(b)) for a, b in zip(left.expressions, right.expressions, strict=True)
        ]
        match function:
            case "=" | "<=>":
                return _all([Call(function, pair) for pair in pairs])
            case "!=":
                return Call("not", (_all([Call("=", pair) for pair in pairs]),))
            case "<" | "<=" | ">" | ">=":
                return _lexicographic(function, pairs)
        raise ConditionError(f"{function} does not apply to tuples: {spark_text(left)}.")

    def _bits(self, node: exp.Expr) -> Expression:
        """& | ~ on integers, for Spark."""
        refuse_symbols(node)
        return self._opaque(node)

    def _tuple(self, node: exp.Expr) -> Expression:
        raise ConditionError(f"{spark_text(node)} can only be compared with another tuple of that length.")

    def _overlaps(self, node: exp.Expr) -> Expression:
        left, right = node.this, node.expression
        sides = (left, right)
        if not all(isinstance(side, exp.Tuple) and len(side.expressions) == 2 for side in sides):
            raise ConditionError("OVERLAPS takes two pairs: (l.start, l.end) OVERLAPS (r.start, r.end).")
        return self._call("overlaps", *left.expressions, *right.expressions)

    def _translate_between(self, node: exp.Expr) -> Expression:
        if node.args.get("symmetric"):
            return self._opaque(node)
        low, high = node.args["low"], node.args["high"]
        return _all([self._call(">=", node.this, low), self._call("<=", node.this, high)])

    def _in(self, node: exp.Expr) -> Expression:
        if (alone := node.args.get("field")) is not None:
            wanted = f"{spark_text(node.this)} IN ({spark_text(alone)})"
            raise ConditionError(f"IN takes a list in parentheses: write {wanted}.")
        if not node.expressions:
            raise ConditionError(f"{spark_text(node.this)} IN () has an empty list.")
        if isinstance(node.this, exp.Tuple):
            rows = [e for e in node.expressions if isinstance(e, exp.Tuple)]
            return connect("or", [self._tuples("=", node.this, row) for row in rows])
        return self._call("in", node.this, *node.expressions)

    def _like(self, node: exp.Expr) -> Expression:
        if isinstance(node.expression, (exp.Any, exp.All)):
            return self._opaque(node)
        like = self._call("like", node.this, node.expression)
        return Call("not", (like,)) if node.args.get("negate") else like

    def _is(self, node: exp.Expr) -> Expression:
        if isinstance(node.expression, exp.Null):
            return self._call("is_null", node.this)
        if isinstance(node.expression, exp.Boolean):
            return self._call("<=>", node.this, node.expression)
        return self._opaque(node)

    def _different(self, node: exp.Expr) -> Expression:
        return Call("not", (self._call("<=>", node.this, node.expression),))

    def _paren(self, node: exp.Expr) -> Expression:
        return self.expression(node.this)

    # Functions

    def _cast(self, node: exp.Expr) -> Expression:
        target = arrow_type(node.args["to"])
        if node.args.get("safe") or target is None:
            return self._opaque(node)
        if isinstance(node.this, exp.Literal) and node.this.is_string:
            if t.is_date(target):
                return literals.date_literal(node.this.this)
            if t.is_timestamp(target):
                return literals.timestamp_literal(node.this.this)
        value = self.expression(node.this)
        if value.type is not None and not can_cast(value.type, target):
            return self._opaque(node)
        return Call("cast", (value,), target)

    def _case(self, node: exp.Expr) -> Expression:
        parts: list[Expression] = []
        for branch in node.args["ifs"]:
            when = self.expression(branch.this)
            parts.append(Call("=", (self.expression(node.this), when)) if node.this else when)
            parts.append(self.expression(branch.args["true"]))
        default = node.args.get("default")
        return Call("case", (*parts, self.expression(default) if default else Literal(None, pa.null())))

    def _if(self, node: exp.Expr) -> Expression:
        otherwise = node.args.get("false") or exp.Null()
        return self._call("case", node.this, node.args["true"], otherwise)

    def _nullif(self, node: exp.Expr) -> Expression:
        return self._call("case", exp.EQ(this=node.this, expression=node.expression), exp.Null(), node.this)

    def _pipes(self, node: exp.Expr) -> Expression:
        refuse_symbols(node)
        return self._call("concat", node.this, node.expression)

    def _texts(self, node: exp.Expr) -> Expression:
        """Adjacent string constants ('a' 'b') are one string."""
        return self._call("concat", *node.expressions)

    def _function(self, function: Function, node: exp.Expr, args: list[exp.Expr]) -> Expression:
        """A call of a function in the table; opaque if only Spark evaluates this call."""
        kinds = function.kinds(len(args))
        varying = any(k is Kind.CONSTANT and not _is_constant(arg) for k, arg in zip(kinds, args, strict=True))
        wider = varying or len(args) > len(function.takes)
        return self._opaque(node) if wider and function.wider_on_spark else self._call(function.name, *args)

    def _trim(self, node: exp.Expr) -> Expression:
        special = node.args.get("position") or node.args.get("expression")
        return self._opaque(node) if special else self._call("trim", node.this)

    def _substring(self, node: exp.Expr) -> Expression:
        bounds = [node.args[key] for key in ("start", "length") if node.args.get(key)]
        return self._function(FUNCTIONS["substring"], node, [node.this, *bounds])

    def _extract(self, node: exp.Expr) -> Expression:
        part = node.this.name.lower()
        whole = part in ("year", "month", "day", "hour", "minute")  # seconds have a fraction
        return self._call(part, node.expression) if whole else self._opaque(node)

    def _truncate(self, node: exp.Expr) -> Expression:
        """date_trunc(unit, timestamp), and trunc(date, unit), which returns a date."""
        name = node.args["unit"].name.lower()
        unit = TRUNCATION_NAMES.get(name, name)
        if unit not in TRUNCATIONS:
            return self._opaque(node)
        truncated = Call("date_trunc", (Literal(unit, types.STRING), self.expression(node.this)))
        return Call("cast", (truncated,), types.DATE) if isinstance(node, exp.DateTrunc) else truncated

    def _date_add(self, node: exp.Expr) -> Expression:
        if node.args.get("unit") is not None and node.args["unit"].name.upper() != "DAY":
            return self._opaque(node)
        return Call("+", (Call("cast", (self.expression(node.this),), types.DATE), self.expression(node.expression)))

    def _add_months(self, node: exp.Expr) -> Expression:
        if not _is_constant(node.expression):
            return self._opaque(node)
        date = Call("cast", (self.expression(node.this),), types.DATE)
        return Call("add_months", (date, self.expression(node.expression)))

    def _datediff(self, node: exp.Expr) -> Expression:
        if node.args.get("unit") is not None and node.args["unit"].name.upper() != "DAY":
            return self._opaque(node)
        return self._call("datediff", _strip_cast(node.this), _strip_cast(node.expression))

    def _anonymous(self, node: exp.Expr) -> Expression:
        name = node.name.lower()
        if name in ISNULL_NAMES and len(node.expressions) == 1:
            test = self._call("is_null", node.expressions[0])
            return test if ISNULL_NAMES[name] else Call("not", (test,))
        if name in CAST_NAMES and len(node.expressions) == 1:
            return Call("cast", (self.expression(node.expressions[0]),), CAST_NAMES[name])
        if name == "distance":
            return self._call("distance", *node.expressions)
        function = SPELLED.get(name)
        return self._opaque(node) if function is None else self._function(function, node, node.expressions)


def _strip_cast(node: exp.Expr) -> exp.Expr:
    """Removes the casts to dates that sqlglot adds to the arguments of datediff() and the text does not have."""
    return node.this if isinstance(node, exp.TsOrDsToDate) and not node.args.get("safe") else node


def _field(struct: Expression, name: str) -> Expression:
    return Call("field", (struct, Literal(name, types.STRING)))


def _all(conjuncts: list[Expression]) -> Expression:
    return connect("and", conjuncts)


def _lexicographic(function: str, pairs: list[tuple[Expression, Expression]]) -> Expression:
    (first, *rest) = pairs
    if not rest:
        return Call(function, first)
    tie = _all([Call("=", first), _lexicographic(function, rest)])
    return Call("or", (Call(function[0], first), tie))


HANDLERS: dict[type[exp.Expr], Callable[[Translator, exp.Expr], Expression]] = {
    exp.Column: Translator._column,
    exp.Dot: Translator._dot,
    exp.Literal: Translator._literal,
    exp.Boolean: Translator._boolean,
    exp.Null: Translator._null,
    exp.HexString: Translator._hex,
    exp.Interval: Translator._interval,
    exp.Overlaps: Translator._overlaps,
    exp.Tuple: Translator._tuple,
    exp.Between: Translator._translate_between,
    exp.In: Translator._in,
    exp.Like: Translator._like,
    exp.Is: Translator._is,
    exp.NullSafeNEQ: Translator._different,
    exp.Paren: Translator._paren,
    exp.Cast: Translator._cast,
    exp.TryCast: Translator._cast,
    exp.Case: Translator._case,
    exp.If: Translator._if,
    exp.Nullif: Translator._nullif,
    exp.Concat: Translator._texts,
    exp.DPipe: Translator._pipes,
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseNot), Translator._bits),
    exp.Trim: Translator._trim,
    exp.Substring: Translator._substring,
    exp.Extract: Translator._extract,
    exp.TimestampTrunc: Translator._truncate,
    exp.DateTrunc: Translator._truncate,
    exp.TsOrDsAdd: Translator._date_add,
    exp.AddMonths: Translator._add_months,
    exp.DateDiff: Translator._datediff,
    exp.Anonymous: Translator._anonymous,
}
