"""Binding: resolves every column in its schema, types every expression, and makes both sides of a comparison one type.

`Binder` also builds bound expressions from bound ones (`call`), which normalisation uses to move terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from dovetail.condition import names, types
from dovetail.condition.arithmetic import BINARY
from dovetail.condition.casts import can_cast, python_value
from dovetail.condition.evaluate import evaluate
from dovetail.condition.expression import COMPARISONS, Call, Column, Expression, Literal, Opaque, type_of
from dovetail.condition.functions import FUNCTIONS, TRUNCATIONS, Kind
from dovetail.condition.literals import natural_type, scalar
from dovetail.condition.meanings import as_stored, with_meaning
from dovetail.condition.render import text_of
from dovetail.condition.unify import arithmetic, comparable, describe, sort_key, to_type, unify
from dovetail.errors import ConditionError

t = pa.types


def bind(
    expression: Expression, left_schema: pa.Schema, right_schema: pa.Schema, zone: str | None = None
) -> Expression:
    """The expression with all columns resolved and all types decided. Timestamps without a time zone are in `zone`."""
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
        """A bound call of a function with bound arguments; constant if all of them are constant."""
        rule = RULES.get(function)
        if rule is None:
            raise ConditionError(f"unknown function {function!r} in the condition.")
        args = with_meaning(function, args, self.schemas)
        if len(args) < rule.fewest or (rule.most is not None and len(args) > rule.most):
            raise ConditionError(f"{function} takes {_count(rule.fewest, rule.most)}, not {len(args)}.")
        if any(arg.type is None for arg in args) and not rule.untyped:
            return Call(function, args, rule.gives)
        bound = rule.bind(self, Call(function, args, type_))
        if not isinstance(bound, Call):
            return bound
        if rule.strict and any(isinstance(arg, Literal) and arg.value is None for arg in bound.args):
            return Literal(None, bound.type)
        if all(isinstance(arg, Literal) for arg in bound.args):
            return Literal(python_value(evaluate(bound, None, None)[0]), bound.type)
        return bound

    def _cast(self, call: Call) -> Expression:
        (arg,), target = call.args, call.type
        if target is None:
            raise ConditionError("cast needs a type to cast to.")
        target = types.plain(target)
        if t.is_timestamp(target):
            target = self._timestamp(arg, target)
        return to_type(self._clock(as_stored(arg)), target)

    def _timestamp(self, arg: Expression, target: pa.DataType) -> pa.DataType:
        """Without a session zone, TIMESTAMP keeps the zone of its argument. No digits are lost."""
        own = arg.type if arg.type is not None and t.is_timestamp(arg.type) else None
        unit = target.unit if own is None else types.finest(target.unit, own.unit)
        if target == types.SESSION_TIMESTAMP:
            return pa.timestamp(unit, self.zone or (own.tz if own is not None else None))
        return pa.timestamp(unit, (self.zone or target.tz) if target.tz else None)

    def _clock(self, arg: Expression) -> Expression:
        """A timestamp with a zone, converted to the session's zone if there is one."""
        if self.zone and arg.type is not None and t.is_timestamp(arg.type) and arg.type.tz:
            return to_type(arg, pa.timestamp(arg.type.unit, self.zone))
        return arg

    # Functions in the table.

    def _plain(self, call: Call) -> Expression:
        function, args = FUNCTIONS[call.function], list(call.args)
        if function.default is not None and len(args) < len(function.takes):
            args.append(function.default)
        if Kind.COMMON in function.takes:
            args = unify(args, self.zone, "combined")
        else:
            kinds = function.kinds(len(args))
            args = [self._of_kind(kind, arg, function.name) for kind, arg in zip(kinds, args, strict=True)]
        gives = function.gives if isinstance(function.gives, pa.DataType) else function.gives(args)
        return Call(function.name, tuple(args), gives)

    def _of_kind(self, kind: Kind, arg: Expression, function: str) -> Expression:
        match kind:
            case Kind.TEXT_OR_BYTES if types.is_bytes(type_of(arg)):
                return arg
            case Kind.TEXT | Kind.TEXT_OR_BYTES:
                return _text(arg, function)
            case Kind.AMOUNT if t.is_duration(type_of(arg)):
                return arg
            case Kind.NUMBER | Kind.AMOUNT:
                return _number(arg, function)
            case Kind.DOUBLE:
                return to_type(_number(arg, function), types.DOUBLE)
            case Kind.CONSTANT:
                return _whole_constant(arg, function)
            case Kind.UNIT:
                return _unit(arg, function)
        instant = self._clock(_instant(arg, function))
        if kind is Kind.DATE:
            return to_type(instant, types.DATE)
        return to_type(instant, pa.timestamp("us")) if kind is Kind.TIMESTAMP and t.is_date(instant.type) else instant

    # Functions with their own syntax. All arguments have a type here, unless a rule says otherwise.

    def _comparison(self, call: Call) -> Expression:
        _refuse_chain(call)
        return Call(call.function, tuple(comparable(call.args, self.zone)), types.BOOLEAN)

    def _arithmetic(self, call: Call) -> Expression:
        left, right = call.args
        return arithmetic(call.function, left, right, self.zone)

    def _negation(self, call: Call) -> Expression:
        arg = self._of_kind(Kind.AMOUNT, call.args[0], call.function)
        return Call(call.function, (arg,), arg.type)

    def _logic(self, call: Call) -> Expression:
        return Call(call.function, tuple(_boolean(arg, call.function) for arg in call.args), types.BOOLEAN)

    def _case(self, call: Call) -> Expression:
        args = call.args
        if len(args) % 2 == 0:
            raise ConditionError("case takes alternating conditions and values, and a default at the end.")
        whens = [_boolean(arg, "case") for arg in args[:-1:2]]
        values = unify((*args[1:-1:2], args[-1]), self.zone, "combined")
        branches = (part for pair in zip(whens, values[:-1], strict=True) for part in pair)
        return Call("case", (*branches, values[-1]), values[-1].type)

    def _in(self, call: Call) -> Expression:
        same = comparable(call.args, self.zone)
        return self.call("=", *same) if len(same) == 2 else Call("in", tuple(same), types.BOOLEAN)

    def _is_null(self, call: Call) -> Expression:
        return Call(call.function, call.args, types.BOOLEAN)

    def _like(self, call: Call) -> Expression:
        return Call(call.function, tuple(_text(arg, call.function) for arg in call.args), types.BOOLEAN)

    def _field(self, call: Call) -> Expression:
        struct, name = call.args
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

    def _place(self, call: Call) -> Expression:
        return Call(call.function, call.args, pa.int32())

    def _sort_key(self, call: Call) -> Expression:
        return sort_key(call.args[0])

    def _overlaps(self, call: Call) -> Expression:
        start, end, other_start, other_end = call.args
        if t.is_duration(type_of(end)):
            end = self.call("+", start, end)
        if t.is_duration(type_of(other_end)):
            other_end = self.call("+", other_start, other_end)
        return Call(call.function, tuple(comparable((start, end, other_start, other_end), self.zone)), types.BOOLEAN)

    def _distance(self, call: Call) -> Expression:
        function, args = call.function, call.args
        if len(args) == 2 and all(types.is_list(type_of(arg)) for arg in args):
            for arg in args:
                if not types.is_number(type_of(arg).value_type):
                    raise ConditionError(f"distance needs lists of numbers; {describe(arg)} is not one.")
            return Call(function, args, types.DOUBLE)
        if len(args) % 2:
            raise ConditionError(f"distance takes as many left as right coordinates, not {len(args)} in all.")
        return Call(function, tuple(self._of_kind(Kind.DOUBLE, arg, function) for arg in args), types.DOUBLE)


def _count(fewest: int, most: int | None) -> str:
    if most is None:
        return f"at least {fewest} arguments"
    return f"{fewest} to {most} arguments" if fewest < most else f"{fewest} argument{'s' * (fewest != 1)}"


def _refuse_chain(call: Call) -> None:
    """Refuse a < b < c, which compares true or false with c."""
    match call.args:
        case (Call(first, (_, middle)), last) if first in COMPARISONS and last.type is not None:
            if not t.is_boolean(last.type) and not t.is_null(last.type):
                comparison, rest = text_of(call.args[0]), f"{call.function} {text_of(last)}"
                raise ConditionError(
                    f"{comparison} {rest}: comparisons do not chain. Write {comparison} AND {text_of(middle)} {rest}."
                )


def _boolean(arg: Expression, function: str) -> Expression:
    if arg.type is None or t.is_boolean(arg.type):
        return arg
    if t.is_null(arg.type):
        return to_type(arg, types.BOOLEAN)
    raise ConditionError(f"{function.upper()} needs true or false; {describe(arg)} is neither.")


def _number(arg: Expression, function: str) -> Expression:
    type_ = type_of(arg)
    if t.is_uint64(type_):
        return to_type(arg, types.as_decimal(type_))
    if t.is_integer(type_) or t.is_null(type_):
        return to_type(arg, types.INT64)
    if not types.is_number(type_):
        cast = f" Cast it: CAST({text_of(arg)} AS DOUBLE)." if can_cast(type_, types.DOUBLE) else ""
        raise ConditionError(f"{function} needs a number; {describe(arg)} is not one.{cast}")
    return arg


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


def _whole_constant(arg: Expression, function: str) -> Literal:
    if not isinstance(arg, Literal) or not isinstance(arg.value, int):
        raise ConditionError(f"{function} needs a constant whole number; {describe(arg)} is not one.")
    return arg


def _unit(arg: Expression, function: str) -> Literal:
    if not isinstance(arg, Literal) or str(arg.value).lower() not in TRUNCATIONS:
        raise ConditionError(f"{function} takes one of {', '.join(TRUNCATIONS)}.")
    return Literal(str(arg.value).lower(), types.STRING)


class Rule(NamedTuple):
    """The number of arguments (`most` None: any number), and how a call is bound."""

    fewest: int
    most: int | None
    bind: Callable[[Binder, Call], Expression]
    gives: pa.DataType | None = None  # the result type if only Spark knows the types of the arguments
    strict: bool = False  # null if any argument is null
    untyped: bool = False  # also bound then


RULES: dict[str, Rule] = {
    **dict.fromkeys(COMPARISONS, Rule(2, 2, Binder._comparison, types.BOOLEAN, strict=True)),
    "<=>": Rule(2, 2, Binder._comparison, types.BOOLEAN),
    **dict.fromkeys(BINARY, Rule(2, 2, Binder._arithmetic, strict=True)),
    "neg": Rule(1, 1, Binder._negation, strict=True),
    **dict.fromkeys(("and", "or"), Rule(1, None, Binder._logic, untyped=True)),
    "not": Rule(1, 1, Binder._logic, untyped=True),
    "cast": Rule(1, 1, Binder._cast, untyped=True),
    "case": Rule(3, None, Binder._case),
    "in": Rule(2, None, Binder._in, types.BOOLEAN),
    "is_null": Rule(1, 1, Binder._is_null, types.BOOLEAN),
    "like": Rule(2, 2, Binder._like, types.BOOLEAN, strict=True),
    "field": Rule(2, 2, Binder._field),
    "sort_key": Rule(1, 1, Binder._sort_key),
    "place": Rule(1, None, Binder._place),
    "overlaps": Rule(4, 4, Binder._overlaps, types.BOOLEAN),
    "distance": Rule(2, None, Binder._distance),
    **{
        f.name: Rule(f.fewest, f.most, Binder._plain, f.gives if isinstance(f.gives, pa.DataType) else None, f.strict)
        for f in FUNCTIONS.values()
    },
}
