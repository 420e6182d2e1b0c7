"""Random conjunctions of predicates of every class, in two dialects: ours (Spark's) and DuckDB's."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.condition.random_conditions import Text, fill
from tests.fuzz.columns import (
    BOOLEANS,
    BYTES,
    COLUMNS,
    DATES,
    EXTREME,
    INSTANTS,
    INTERVALS,
    LENGTHS,
    LONG,
    NUMBERS,
    POINTS,
    TEXTS,
    TIMES,
    ZONED,
)

LESS, MORE = ("<", "<="), (">", ">=")
LITERALS = ("0", "1", "-2", "3", "0.5", "0.1", "-1.25", "2.5")
STEPS = ("0", "0.1", "0.5", "1", "1.5", "3")
RADII = ("0.5", "1", "1.5", "2.5", "40", "1e17", "1.7e308")
LENGTHS_OF_TIME = {
    "INTERVAL 0 SECONDS": 0,
    "INTERVAL 90 SECONDS": 90,
    "INTERVAL 5 MINUTES": 300,
    "INTERVAL 12 HOURS": 43_200,
    "INTERVAL '1' DAY": 86_400,
}
DAY_NS = 86_400 * 10**9
FLOATING = ("float", "double")
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32")
COORDINATES = ("i8", "i16", "i32", "u8", "n5", "f16", "f32", "f64", "g64")
EXACT_NUMBERS = {
    name: kind
    for name, kind in {**NUMBERS, **LONG, "u64x": EXTREME["u64x"]}.items()
    if kind.family not in ("float", "double")
}
FAMILIES: tuple[Mapping[str, Any], ...] = (
    NUMBERS,
    NUMBERS,
    NUMBERS,
    {**NUMBERS, **EXTREME},
    EXACT_NUMBERS,
    TEXTS,
    BYTES,
    {**DATES, **INSTANTS},
    ZONED,
    TIMES,
    LENGTHS,
    BOOLEANS,
)
"""Columns that can be compared with each other."""


class Value(NamedTuple):
    spark: str
    duck: str
    family: str


def column(side: str, name: str) -> Value:
    kind = COLUMNS[name]
    return Value(f"{side}.{name}", kind.duck.format(f"{side}.{name}"), kind.family)


def literal(text: str) -> Value:
    return Value(text, text, "double" if "e" in text else "decimal" if "." in text else "int")


def length(text: str) -> Value:
    return Value(text, str(LENGTHS_OF_TIME[text] * 10**9), "length")


def arithmetic(a: Value, operator: str, b: Value) -> Value:
    """Numbers are computed as doubles, unless both are floats or neither is floating-point."""
    a, b, family = _alike(a, b)
    return Value(f"({a.spark} {operator} {b.spark})", f"({a.duck} {operator} {b.duck})", family)


def compared(a: Value, operator: str, b: Value) -> Text:
    a, b, _ = _alike(a, b)
    return Text(f"{a.spark} {operator} {b.spark}", f"{a.duck} {operator} {b.duck}")


def absolute(value: Value) -> Value:
    return value._replace(spark=f"abs({value.spark})", duck=f"abs({value.duck})")


def double(value: Value) -> Value:
    return Value(value.spark, f"CAST({value.duck} AS DOUBLE)", "double")


def _alike(a: Value, b: Value) -> tuple[Value, Value, str]:
    families = {a.family, b.family}
    if len(families) > 1 and families & set(FLOATING):
        return double(a), double(b), "double"
    return a, b, "decimal" if "decimal" in families else a.family


def all_of(parts: list[Text]) -> Text:
    return Text(" AND ".join(p.spark for p in parts), " AND ".join(p.duck for p in parts))


def renamed(condition: Text, left: str, right: str) -> Text:
    """The condition with other input names than l and r."""
    aliases = {"l": left, "r": right}
    return Text(*(re.sub(r"\b([lr])\.", lambda match: f"{aliases[match[1]]}.", text) for text in condition))


class Conditions:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def condition(self) -> Text:
        """One to five predicates, the first of which a kernel can drive."""
        driving = [self.equal, self.less, self.less, self.unequal, self.band, self.band, self.clock_band, self.overlap]
        driving += [self.rectangles, self.distance, self.computed, self.linear]
        anything = [*driving, self.equal, self.same, self.one_sided, self.residual]
        parts = [self.rng.choice(driving if self.rng.random() < 0.95 else anything)()]
        parts += [self.rng.choice(anything)() for _ in range(self.rng.choice((0, 0, 1, 1, 2, 3, 4)))]
        self.rng.shuffle(parts)
        return all_of(parts)

    def edge(self) -> Text:
        """One or two predicates, the first of which an operator for several inputs can use."""
        linking = [self.equal, self.equal, self.equal, self.less, self.band, self.band, self.clock_band, self.computed]
        parts = [self.rng.choice(linking)()]
        if self.rng.random() < 0.3:
            parts.append(self.rng.choice([*linking, self.unequal, self.distance, self.overlap, self.linear])())
        return all_of(parts)

    def sides(self) -> list[str]:
        return self.rng.sample("lr", 2)

    def columns(self, family: Mapping[str, Any] | tuple[str, ...] | None = None) -> tuple[Value, Value]:
        """Comparable columns of the two sides; half of the time with the same name."""
        names = list(family or self.rng.choice(FAMILIES))
        one, other = self.rng.choice(names), self.rng.choice(names)
        mine, theirs = self.sides()
        return column(mine, one), column(theirs, one if self.rng.random() < 0.5 else other)

    # Predicates between the two sides.

    def equal(self) -> Text:
        a, b = self.columns()
        return compared(a, "=", b)

    def less(self) -> Text:
        a, b = self.columns()
        return compared(a, self.rng.choice(LESS + MORE), b)

    def unequal(self) -> Text:
        a, b = self.columns()
        return compared(a, "!=", b)

    def same(self) -> Text:
        a, b = self.columns()
        spark, duck = compared(a, "<=>", b)
        return Text(spark, duck.replace("<=>", "IS NOT DISTINCT FROM"))

    def computed(self) -> Text:
        """Keys computed from columns of one side."""
        operator = self.rng.choice(("=", "=", "!=", *LESS, *MORE))
        match self.rng.randrange(4):
            case 0:
                a, b = self.columns(TEXTS)
                return compared(Value(f"lower({a.spark})", f"lower({a.duck})", "text"), operator, b)
            case 1:
                mine, theirs = self.sides()
                return compared(self._day(mine), operator, column(theirs, self.rng.choice(list(DATES))))
            case 2:
                a, b = self.columns(INTEGERS)
                divided = self.rng.choice(("%", "div"))
                quotient = f"{a.duck} {'//' if divided == 'div' else '%'} 2"
                return compared(Value(f"({a.spark} {divided} 2)", f"({quotient})", "int"), operator, b)
            case _:
                a, b = self.columns(NUMBERS)
                return compared(self._number(a), operator, b)

    def _day(self, side: str) -> Value:
        days = self.rng.choice((1, 2))
        match self.rng.randrange(3):
            case 0:
                name = self.rng.choice(list(INSTANTS))
                return Value(f"CAST({side}.{name} AS DATE)", f"epoch_ns(CAST({side}.{name} AS DATE))", "instant")
            case 1:
                date = column(side, self.rng.choice(list(DATES)))
                return Value(f"date_add({date.spark}, {days})", f"({date.duck} + {days * DAY_NS})", "instant")
            case _:
                date = column(side, self.rng.choice(list(DATES)))
                return Value(f"({date.spark} - {days})", f"({date.duck} - {days * DAY_NS})", "instant")

    def _number(self, a: Value) -> Value:
        match self.rng.randrange(5):
            case 0:
                return arithmetic(a, self.rng.choice("+-"), literal(self.rng.choice(STEPS)))
            case 1:
                return arithmetic(a, "*", literal("2"))
            case 2:
                return arithmetic(a, self.rng.choice("+-"), column(a.spark[0], self.rng.choice(COORDINATES)))
            case 3:
                return Value(f"(- {a.spark})", f"(- {a.duck})", a.family)
            case _:
                return absolute(a)

    def linear(self) -> Text:
        """A comparison with terms of both inputs on both sides."""
        (a, b), (c, d) = self.columns(NUMBERS), self.columns(COORDINATES)
        first, second = (arithmetic(x, self.rng.choice("+-"), y) for x, y in ((a, b), (c, d)))
        return compared(first, self.rng.choice(("=", *LESS, *MORE)), second)

    def band(self) -> Text:
        a, b = self.columns(self.rng.choice((NUMBERS, NUMBERS, EXACT_NUMBERS)))
        low, high = (literal(self.rng.choice(STEPS)) for _ in range(2))
        return self._banded(a, b, low, high)

    def clock_band(self) -> Text:
        a, b = self.columns(self.rng.choice(({**DATES, **INSTANTS}, INSTANTS, ZONED, LENGTHS, DATES)))
        low, high = (length(self.rng.choice(list(LENGTHS_OF_TIME))) for _ in range(2))
        return self._banded(a, b, low, high)

    def _banded(self, a: Value, b: Value, low: Value, high: Value) -> Text:
        less, more = self.rng.choice(LESS), self.rng.choice(MORE)
        difference = arithmetic(a, "-", b)
        if difference.family in ("instant", "zoned"):
            difference = difference._replace(family="length")
        match self.rng.randrange(6):
            case 0:
                return compared(absolute(difference), less, high)
            case 1:
                return compared(high, more, absolute(difference))
            case 2:
                lowest, highest = arithmetic(b, "-", low), arithmetic(b, "+", high)
                return all_of([compared(a, more, lowest), compared(a, less, highest)])
            case 3:
                lowest, highest = arithmetic(b, "-", low), arithmetic(b, "+", high)
                inside = all_of([compared(a, ">=", lowest), compared(a, "<=", highest)])
                return Text(f"{a.spark} BETWEEN {lowest.spark} AND {highest.spark}", inside.duck)
            case 4:
                return compared(difference, self.rng.choice((less, more)), high)
            case _:
                return all_of([compared(difference, less, high), compared(arithmetic(a, "+", low), more, b)])

    def overlap(self) -> Text:
        return self._overlap(self.rng.choice(list(INTERVALS)), operator=self.rng.random() < 0.3)

    def rectangles(self) -> Text:
        x, y = self.rng.sample(list(INTERVALS), 2)
        return all_of([self._overlap(x), self._overlap(y)])

    def _overlap(self, names: tuple[str, str], operator: bool = False) -> Text:
        start, end, other_start, other_end = (column(side, name) for side in self.sides() for name in names)
        less, more = ("<", ">") if operator else (self.rng.choice(LESS), self.rng.choice(MORE))
        spelled = all_of([compared(start, less, other_end), compared(end, more, other_start)])
        if not operator:
            return spelled
        spark = f"({start.spark}, {end.spark}) OVERLAPS ({other_start.spark}, {other_end.spark})"
        return Text(spark, spelled.duck)

    def distance(self) -> Text:
        if self.rng.random() < 0.3:
            return self._points_apart()
        pairs = [self.columns((*COORDINATES, "f64x")) for _ in range(self.rng.choice((2, 2, 3, 4)))]
        pairs = [(a, b) if a.spark[0] == "l" else (b, a) for a, b in pairs]
        less, radius = self.rng.choice(LESS), literal(self.rng.choice(RADII))
        match self.rng.randrange(3):
            case 0:
                squares = [_square(arithmetic(double(a), "-", double(b))) for a, b in pairs]
                coordinates = [pair[side].spark for side in (0, 1) for pair in pairs]
                far = Value(f"distance({', '.join(coordinates)})", f"sqrt({_sum(squares).duck})", "double")
            case 1:
                squares = [_power(double(arithmetic(a, "-", b))) for a, b in pairs]
                total = _sum(squares)
                far = Value(f"sqrt({total.spark})", f"sqrt({total.duck})", "double")
            case _:
                far = _sum([_square(arithmetic(a, "-", b)) for a, b in pairs])
        return compared(far, less, radius)

    def _points_apart(self) -> Text:
        name = self.rng.choice(list(POINTS))
        a, b = column("l", name), column("r", name)
        # list_distance rejects null elements and lists of different lengths, for which there is no distance.
        squares = f"list_transform(list_zip({a.duck}, {b.duck}), lambda e: (e[1] - e[2]) * (e[1] - e[2]))"
        known = f"len({a.duck}) = len({b.duck}) AND len(list_filter({squares}, lambda s: s IS NULL)) = 0"
        far = Value(
            f"distance({a.spark}, {b.spark})",
            f"CASE WHEN {known} THEN sqrt(coalesce(list_sum({squares}), 0)) END",
            "double",
        )
        return compared(far, self.rng.choice(LESS), literal(self.rng.choice(RADII)))

    # Predicates that no kernel drives.

    def one_sided(self) -> Text:
        side = self.rng.choice("lr")
        match self.rng.randrange(6):
            case 0:
                number = column(side, self.rng.choice(list(NUMBERS)))
                return compared(number, self.rng.choice(("=", "!=", *LESS, *MORE)), literal(self.rng.choice(LITERALS)))
            case 1:
                return fill("{0}.{1} IS {2}NULL", *map(_both, (side, self._any(), self.rng.choice(("", "NOT ")))))
            case 2:
                return _both(f"{side}.{self.rng.choice(list(TEXTS))} LIKE '{self.rng.choice(('a%', '%b', '_'))}'")
            case 3:
                return _both(f"{side}.{self.rng.choice(('i8', 'i32', 'i64', 'u16'))} IN (0, 1, 2, 5)")
            case 4:
                return _both(f"{side}.b")
            case _:
                return _both(f"NOT ({side}.{self.rng.choice(list(TEXTS))} >= 'a')")

    def residual(self) -> Text:
        simple = [self.equal, self.less, self.unequal, self.band, self.overlap, self.same, self.one_sided]
        one, two, three = (self.rng.choice(simple)() for _ in range(3))
        match self.rng.randrange(6):
            case 0:
                return fill("(({0}) OR ({1}))", one, two)
            case 1:
                return fill("NOT (({0}) AND ({1}))", one, two)
            case 2:
                return fill("CASE WHEN {0} THEN {1} ELSE {2} END", one, two, three)
            case 3:
                a, b = self.columns(NUMBERS)
                return compared(arithmetic(a, "+", b), self.rng.choice(LESS + MORE), literal(self.rng.choice(LITERALS)))
            case 4:
                a, b = self.columns(TEXTS)
                return Text(f"{a.spark} || {b.spark} LIKE 'a%'", f"{a.duck} || {b.duck} LIKE 'a%'")
            case _:
                a, b = self.columns(("i8", "i16", "i32", "i64"))
                return fill("coalesce({0}, {1}) >= 1", Text(a.spark, a.duck), Text(b.spark, b.duck))

    def _any(self) -> str:
        return self.rng.choice(list(COLUMNS))


def _both(text: str) -> Text:
    return Text(text, text)


def _square(value: Value) -> Value:
    return arithmetic(value, "*", value)


def _power(value: Value) -> Value:
    return Value(f"pow({value.spark}, 2)", f"pow({value.duck}, 2)", "double")


def _sum(values: list[Value]) -> Value:
    total, *others = values
    for value in others:
        total = arithmetic(total, "+", value)
    return total
