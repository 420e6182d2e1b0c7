"""Binding: every column found in its schema, every expression given a type, every comparison between equal types.

`Binder` also builds bound expressions out of bound ones (`call`), which is how normalisation moves terms around.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from dovetail.condition import names, types
from dovetail.condition.casts import can_cast, python_value
from dovetail.condition.evaluate import evaluate
from dovetail.condition.expression import COMPARISONS, FUNCTIONS, Call, Column, Expression, Literal, Opaque, type_of
from dovetail.condition.functions import PARTS, TRUNCATIONS
from dovetail.condition.literals import natural_type, scalar
from dovetail.condition.meanings import as_stored, with_meaning
from dovetail.condition.render import text_of
from dovetail.condition.unify import arithmetic, comparable, describe, sort_key, to_type, unify
from dovetail.errors import ConditionError

t = pa.types

Args = tuple[Expression, ...]


def bind(
    expression: Expression, left_schema: pa.Schema, right_schema: pa.Schema, zone: str | None = None
) -> Expression:
    """The expression with all columns resolved and all types decided. `zone` is where timestamps without a zone are."""
    return Binder((left_schema, right_schema), zone).bind(expression)


class Binder:
    def __init__(self, schemas: names.Schemas, zone: str | None = None) -> None:
        self.schemas = schemas
        self.zone = zone

    def bind(self, expression: Expression) -> Expression:
        match expression:
            case Column(side, name):
                column = names.resolve(side, name, self.schemas)
                return to_type(column, types.plain(type_of(column)))
            case Literal(value, type_):
                literal = Literal(value, natural_type(value) if type_ is None else types.plain(type_))
                scalar(literal)  # raises if the value is not of the type
                return literal
            case Opaque(text, columns, type_):
                resolved = tuple(names.resolve(c.side, c.name, self.schemas) for c in columns)
                return Opaque(text, resolved, type_)
            case Call(function, args, type_):
                return self.call(function, *(self.bind(arg) for arg in args), type_=type_)

    def call(self, function: str, *args: Expression, type_: pa.DataType | None = None) -> Expression:
        """A function of bound arguments, bound; constant if they all are."""
        if function not in FUNCTIONS:
            raise ConditionError(f"unknown function {function!r} in the condition.")
        args = with_meaning(function, args, self.schemas)
        fewest, most = ARITY.get(function, (1, None))
        if len(args) < fewest or (most is not None and len(args) > most):
            raise ConditionError(f"{function} takes {_count(fewest, most)}, not {len(args)}.")
        bound = self._apply_typer(function, args, type_)
        if not isinstance(bound, Call):
            return bound
        if function in STRICT and any(isinstance(arg, Literal) and arg.value is None for arg in bound.args):
            return Literal(None, bound.type)
        if all(isinstance(arg, Literal) for arg in bound.args):
            return Literal(python_value(evaluate(bound, None, None)[0]), bound.type)
        return bound

    def _apply_typer(self, function: str, args: Args, type_: pa.DataType | None) -> Expression:
        if function in COMPARISONS:
            _refuse_chain(function, args)
            return Call(function, tuple(comparable(args, self.zone)), types.BOOLEAN)
        if function in ARITHMETIC:
            return arithmetic(function, args[0], args[1], self.zone)
        if function == "cast":
            return self._cast(args[0], type_)
        if function in ("and", "or", "not"):
            return Call(function, tuple(_boolean(arg, function) for arg in args), types.BOOLEAN)
        if any(arg.type is None for arg in args):
            return Call(function, args, types.BOOLEAN if function in ANSWERS else None)
        return TYPERS[function](self, function, args)

    def _cast(self, arg: Expression, target: pa.DataType | None) -> Expression:
        if target is None:
            raise ConditionError("cast needs a type to cast to.")
        target = types.plain(target)
        if t.is_timestamp(target):
            target = self._timestamp(arg, target)
        return to_type(self._clock(as_stored(arg)), target)

    def _timestamp(self, arg: Expression, target: pa.DataType) -> pa.DataType:
        """Without a session zone, TIMESTAMP keeps the zone of what is cast, and nothing is cut off."""
        own = arg.type if arg.type is not None and t.is_timestamp(arg.type) else None
        unit = target.unit if own is None else types.finest(target.unit, own.unit)
        if target == types.SESSION_TIMESTAMP:
            return pa.timestamp(unit, self.zone or (own.tz if own is not None else None))
        return pa.timestamp(unit, (self.zone or target.tz) if target.tz else None)

    def _clock(self, arg: Expression) -> Expression:
        """A timestamp with a zone, on the clock of the session's zone if there is one."""
        if self.zone and arg.type is not None and t.is_timestamp(arg.type) and arg.type.tz:
            return to_type(arg, pa.timestamp(arg.type.unit, self.zone))
        return arg

    # How each function types its arguments. All of them have a type here.

    def _common(self, function: str, args: Args) -> Expression:
        same = unify(args, self.zone, "combined")
        return Call(function, tuple(same), same[0].type)

    def _case(self, function: str, args: Args) -> Expression:
        if len(args) % 2 == 0:
            raise ConditionError("case takes alternating conditions and values, and a default at the end.")
        whens = [_boolean(arg, "case") for arg in args[:-1:2]]
        values = unify((*args[1:-1:2], args[-1]), self.zone, "combined")
        branches = (part for pair in zip(whens, values[:-1], strict=True) for part in pair)
        return Call("case", (*branches, values[-1]), values[-1].type)

    def _in(self, function: str, args: Args) -> Expression:
        same = comparable(args, self.zone)
        return self.call("=", *same) if len(same) == 2 else Call("in", tuple(same), types.BOOLEAN)

    def _is_null(self, function: str, args: Args) -> Expression:
        return Call(function, args, types.BOOLEAN)

    def _isnan(self, function: str, args: Args) -> Expression:
        return Call(function, (_number(args[0], function, types.DOUBLE),), types.BOOLEAN)

    def _like(self, function: str, args: Args) -> Expression:
        return Call(function, tuple(_text(arg, function) for arg in args), types.BOOLEAN)

    def _doubles(self, function: str, args: Args) -> Expression:
        return Call(function, tuple(_number(arg, function, types.DOUBLE) for arg in args), types.DOUBLE)

    def _bind_sign(self, function: str, args: Args) -> Expression:
        """neg and abs: of numbers and of lengths of time."""
        (arg,) = args
        type_ = type_of(arg)
        if t.is_duration(type_):
            return Call(function, args, type_)
        if t.is_uint64(type_):
            arg = to_type(arg, types.as_decimal(type_))
        elif t.is_integer(type_) or t.is_null(type_):
            arg = to_type(arg, types.INT64)
        return Call(function, (_number(arg, function),), arg.type)

    def _whole(self, function: str, args: Args) -> Expression:
        arg = _number(args[0], function)
        type_ = type_of(arg)
        if t.is_decimal(type_):
            return Call(function, (arg,), types.decimal(min(type_.precision - type_.scale + 1, 38), 0))
        arg = to_type(arg, types.INT64 if t.is_integer(type_) else types.DOUBLE)
        return Call(function, (arg,), types.INT64)

    def _round(self, function: str, args: Args) -> Expression:
        arg = _number(args[0], function)
        digits = args[1] if len(args) > 1 else Literal(0, pa.int32())
        if not isinstance(digits, Literal) or not isinstance(digits.value, int):
            raise ConditionError("round takes a constant number of digits.")
        type_ = type_of(arg)
        if t.is_integer(type_):
            arg, type_ = to_type(arg, types.INT64), types.INT64
        elif t.is_decimal(type_):
            scale = min(type_.scale, max(digits.value, 0))
            type_ = types.decimal(min(type_.precision - type_.scale + 1 + scale, 38), scale)
        return Call(function, (arg, digits), type_)

    def _of_text(self, function: str, args: Args) -> Expression:
        return Call(function, tuple(_text(arg, function) for arg in args), types.STRING)

    def _length(self, function: str, args: Args) -> Expression:
        (arg,) = args
        return Call(function, (arg if types.is_bytes(type_of(arg)) else _text(arg, function),), pa.int32())

    def _substring(self, function: str, args: Args) -> Expression:
        if not all(isinstance(arg, Literal) and isinstance(arg.value, int) for arg in args[1:]):
            raise ConditionError("substring takes a constant position and length.")
        return Call(function, (_text(args[0], function), *args[1:]), types.STRING)

    def _part(self, function: str, args: Args) -> Expression:
        arg = self._clock(_instant(args[0], function))
        if t.is_date(arg.type) and function in ("hour", "minute", "second"):
            arg = to_type(arg, pa.timestamp("us"))
        return Call(function, (arg,), pa.int32())

    def _date_trunc(self, function: str, args: Args) -> Expression:
        unit, arg = args[0], self._clock(_instant(args[1], function))
        if not isinstance(unit, Literal) or str(unit.value).lower() not in TRUNCATIONS:
            raise ConditionError(f"date_trunc takes one of {', '.join(TRUNCATIONS)}.")
        if t.is_date(arg.type):
            arg = to_type(arg, pa.timestamp("us"))
        return Call(function, (Literal(str(unit.value).lower(), types.STRING), arg), arg.type)

    def _add_months(self, function: str, args: Args) -> Expression:
        arg = self._clock(_instant(args[0], function))
        if not isinstance(args[1], Literal) or not isinstance(args[1].value, int):
            raise ConditionError("an interval of months must be a constant.")
        return Call(function, (arg, args[1]), arg.type)

    def _datediff(self, function: str, args: Args) -> Expression:
        dates = tuple(to_type(self._clock(_instant(arg, function)), types.DATE) for arg in args)
        return Call(function, dates, pa.int32())

    def _field(self, function: str, args: Args) -> Expression:
        struct, name = args
        type_ = type_of(struct)
        assert isinstance(name, Literal)
        if not t.is_struct(type_):
            raise ConditionError(f"{describe(struct)} is not a struct: it has no field {name.value!r}.")
        found = names.candidates(pa.schema(type_), name.value)
        if len(found) != 1:
            fields = ", ".join(field.name for field in type_)
            raise ConditionError(f"{describe(struct)} has no single field {name.value!r}. Its fields are: {fields}.")
        field = type_.field(found[0])
        return to_type(Call("field", (struct, Literal(found[0], types.STRING)), field.type), types.plain(field.type))

    def _place(self, function: str, args: Args) -> Expression:
        return Call(function, args, pa.int32())

    def _sort_key(self, function: str, args: Args) -> Expression:
        return sort_key(args[0])

    def _overlaps(self, function: str, args: Args) -> Expression:
        start, end, other_start, other_end = args
        if t.is_duration(type_of(end)):
            end = self.call("+", start, end)
        if t.is_duration(type_of(other_end)):
            other_end = self.call("+", other_start, other_end)
        return Call(function, tuple(comparable((start, end, other_start, other_end), self.zone)), types.BOOLEAN)

    def _distance(self, function: str, args: Args) -> Expression:
        if len(args) == 2 and all(types.is_list(type_of(arg)) for arg in args):
            for arg in args:
                if not types.is_number(type_of(arg).value_type):
                    raise ConditionError(f"distance needs lists of numbers; {describe(arg)} is not one.")
            return Call(function, args, types.DOUBLE)
        if len(args) % 2:
            raise ConditionError(f"distance takes as many left as right coordinates, not {len(args)} in all.")
        return self._doubles(function, args)


def _count(fewest: int, most: int | None) -> str:
    if most is None:
        return f"at least {fewest} arguments"
    return f"{fewest} to {most} arguments" if fewest < most else f"{fewest} argument{'s' * (fewest != 1)}"


def _refuse_chain(function: str, args: Args) -> None:
    """a < b < c compares true or false with c."""
    match args:
        case (Call(first, (_, middle)), last) if first in COMPARISONS and last.type is not None:
            if not t.is_boolean(last.type) and not t.is_null(last.type):
                comparison, rest = text_of(args[0]), f"{function} {text_of(last)}"
                raise ConditionError(
                    f"{comparison} {rest}: comparisons do not chain. Write {comparison} AND {text_of(middle)} {rest}."
                )


def _boolean(arg: Expression, function: str) -> Expression:
    if arg.type is None or t.is_boolean(arg.type):
        return arg
    if t.is_null(arg.type):
        return to_type(arg, types.BOOLEAN)
    raise ConditionError(f"{function.upper()} needs true or false; {describe(arg)} is neither.")


def _number(arg: Expression, function: str, target: pa.DataType | None = None) -> Expression:
    type_ = type_of(arg)
    if not (types.is_number(type_) or t.is_null(type_)):
        cast = f" Cast it: CAST({text_of(arg)} AS DOUBLE)." if can_cast(type_, types.DOUBLE) else ""
        raise ConditionError(f"{function} needs a number; {describe(arg)} is not one.{cast}")
    return arg if target is None else to_type(arg, target)


def _text(arg: Expression, function: str) -> Expression:
    type_ = type_of(arg)
    if not (types.is_text(type_) or t.is_null(type_)):
        cast = f" Cast it: CAST({text_of(arg)} AS STRING)." if can_cast(type_, types.STRING) else ""
        raise ConditionError(f"{function} needs text; {describe(arg)} is not.{cast}")
    return to_type(arg, types.STRING)


def _instant(arg: Expression, function: str) -> Expression:
    type_ = type_of(arg)
    if isinstance(arg, Literal) and types.is_text(type_):
        return to_type(arg, pa.timestamp("us"))
    if not types.is_instant(type_):
        cast = f" Cast it: CAST({text_of(arg)} AS TIMESTAMP)." if types.is_text(type_) else ""
        raise ConditionError(f"{function} needs a date or a timestamp; {describe(arg)} is neither.{cast}")
    return arg


ARITHMETIC = ("+", "-", "*", "/", "div", "%")

STRICT = frozenset({*COMPARISONS, *ARITHMETIC, "neg", "abs", "sqrt", "pow", "like"} - {"<=>"})
"""Functions that are null as soon as one argument is."""

ANSWERS = frozenset({*COMPARISONS, "and", "or", "not", "in", "like", "is_null", "isnan", "overlaps"})

ARITY: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys((*COMPARISONS, *ARITHMETIC, "like", "pow"), (2, 2)),
    **dict.fromkeys(("date_trunc", "add_months", "datediff", "field"), (2, 2)),
    **dict.fromkeys(("not", "is_null", "isnan", "neg", "abs", "sqrt", "floor", "ceil", "cast", *PARTS), (1, 1)),
    **dict.fromkeys(("lower", "upper", "length", "trim", "sort_key"), (1, 1)),
    **dict.fromkeys(("in", "greatest", "least", "distance"), (2, None)),
    "round": (1, 2),
    "substring": (2, 3),
    "case": (3, None),
    "overlaps": (4, 4),
}

TYPERS: dict[str, Callable[[Binder, str, Args], Expression]] = {
    **dict.fromkeys(("coalesce", "greatest", "least"), Binder._common),
    **dict.fromkeys(("sqrt", "pow"), Binder._doubles),
    **dict.fromkeys(("neg", "abs"), Binder._bind_sign),
    **dict.fromkeys(("floor", "ceil"), Binder._whole),
    **dict.fromkeys(("lower", "upper", "trim", "concat"), Binder._of_text),
    **dict.fromkeys(PARTS, Binder._part),
    "case": Binder._case,
    "in": Binder._in,
    "is_null": Binder._is_null,
    "isnan": Binder._isnan,
    "like": Binder._like,
    "round": Binder._round,
    "length": Binder._length,
    "substring": Binder._substring,
    "date_trunc": Binder._date_trunc,
    "add_months": Binder._add_months,
    "datediff": Binder._datediff,
    "field": Binder._field,
    "sort_key": Binder._sort_key,
    "place": Binder._place,
    "overlaps": Binder._overlaps,
    "distance": Binder._distance,
}
