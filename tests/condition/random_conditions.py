"""Random tables of every type, and random conditions over them in two dialects: ours (Spark's) and DuckDB's.

Numbers are small and mostly quarters, to avoid differences between the two engines in edge cases (a float compared with
an integer, overflow in 8 bits); doubles also have values that need rounding.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

INF, NAN = float("inf"), float("nan")


class Text(NamedTuple):
    spark: str
    duck: str


def both(text: str) -> Text:
    return Text(text, text)


def fill(template: str, *parts: Text) -> Text:
    return Text(template.format(*(p.spark for p in parts)), template.format(*(p.duck for p in parts)))


INTEGERS = {"i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64()}
UNSIGNED = {"u8": pa.uint8(), "u32": pa.uint32(), "u64": pa.uint64()}
DECIMALS = {"p": pa.decimal128(10, 2), "q": pa.decimal128(6, 1)}
FLOATS = {"f32": pa.float32(), "f64": pa.float64()}
INSTANTS = {"d": pa.date32(), "ts": pa.timestamp("us"), "sec": pa.timestamp("s")}
CODED = pa.dictionary(pa.int8(), pa.string())
TEXTS = {"s": pa.string(), "big": pa.large_string(), "view": pa.string_view(), "code": CODED}
OTHERS = {"b": pa.bool_(), "tz": pa.timestamp("us", "UTC"), "ms": pa.timestamp("ms", "Europe/Berlin")}
ALL = {**INTEGERS, **UNSIGNED, **DECIMALS, **FLOATS, **INSTANTS, **TEXTS, **OTHERS}

POOLS: dict[str, Sequence[Any]] = {
    **dict.fromkeys(INTEGERS, (-3, -2, -1, 0, 1, 2, 3, 5)),
    **dict.fromkeys(UNSIGNED, (0, 1, 2, 3, 5)),
    "p": [Decimal(v) for v in ("-1.25", "0.00", "0.75", "1.00", "2.50", "3.00")],
    "q": [Decimal(v) for v in ("-1.0", "0.0", "0.5", "1.0", "2.5")],
    "f32": [-1.25, -0.0, 0.0, 0.5, 1.0, 2.5, 3.0, NAN, INF, -INF],
    "f64": [-1.1, -0.0, 0.0, 0.1, 0.3, 1.0, 2.5, 3.0, 1 / 3, NAN, INF, -INF],
    "d": [dt.date(2024, 2, day) for day in (26, 27, 28, 29)] + [dt.date(2024, 3, 1)],
    **dict.fromkeys(("ts", "sec"), tuple(dt.datetime(2024, 2, 28, h, m) for h in (0, 12, 23) for m in (0, 5, 59))),
    **dict.fromkeys(("tz", "ms"), tuple(dt.datetime(2024, 2, 28, h, 5, tzinfo=dt.UTC) for h in (0, 12, 23))),
    **dict.fromkeys(TEXTS, ("", "a", "ab", "b", "a%b", "Ä", "it's")),
    "b": [True, False],
}
TEMPLATES = ("NOT ({0})", "({0} OR {1})", "({0} AND {1})", "NOT ({0} AND {1})", "NOT ({0} OR {1})")
INTERVALS = ("INTERVAL 5 MINUTES", "INTERVAL '1' DAY", "INTERVAL 90 SECONDS", "INTERVAL 12 HOURS")


def table(rng: random.Random, rows: int) -> pa.RecordBatch:
    """A random table in which a sixth of all values are null."""
    columns = {
        name: pa.array([None if rng.random() < 1 / 6 else rng.choice(POOLS[name]) for _ in range(rows)], type_)
        for name, type_ in ALL.items()
    }
    return pa.record_batch(columns)


class Conditions:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def condition(self) -> Text:
        """A conjunction of one to four parts."""
        parts = [self.boolean(2) for _ in range(self.rng.choice((1, 1, 2, 2, 3, 4)))]
        return Text(" AND ".join(p.spark for p in parts), " AND ".join(p.duck for p in parts))

    def boolean(self, depth: int) -> Text:
        kinds = [self.comparison, self.comparison, self.shape, self.shape, self.test]
        if depth:
            kinds += [lambda: self.logic(depth - 1)]
        return self.rng.choice(kinds)()

    def logic(self, depth: int) -> Text:
        return fill(self.rng.choice(TEMPLATES), self.boolean(depth), self.boolean(depth))

    def comparison(self) -> Text:
        operator = self.rng.choice(("=", "<", "<=", ">", ">=", "!=", "<>"))
        left, right = self.operands()
        if self.rng.random() < 0.1:
            return Text(f"{left.spark} <=> {right.spark}", f"{left.duck} IS NOT DISTINCT FROM {right.duck}")
        return fill("{0} " + operator + " {1}", left, right)

    def operands(self) -> tuple[Text, Text]:
        """Two values that can be compared."""
        match self.rng.choice(("number", "number", "number", "exact", "instant", "zoned", "text", "bool")):
            case "number":
                return self.number(2), self.number(2)
            case "exact":
                return self.number(2, exact=True), self.number(2, exact=True)
            case "instant":
                return self.instant(), self.instant()
            case "zoned":
                return self.column(("tz", "ms")), self.column(("tz", "ms"))
            case "text":
                return self.text(), self.text()
            case _:
                return self.column(("b",)), self.rng.choice((self.column(("b",)), both("TRUE")))

    def column(self, names: tuple[str, ...] | dict[str, Any], side: str | None = None) -> Text:
        side = side or self.rng.choice("lr")
        return both(f"{side}.{self.rng.choice(list(names))}")

    def number(self, depth: int, exact: bool = False) -> Text:
        pick = self.rng.random()
        if depth == 0 or pick < 0.45:
            kinds = [INTEGERS, INTEGERS, UNSIGNED, DECIMALS] + ([] if exact else [FLOATS, FLOATS])
            kind = self.rng.choice(kinds)
            column = self.column(kind)
            if kind is UNSIGNED or kind is INTEGERS:
                # In the column's own width, DuckDB would overflow.
                return Text(column.spark, f"CAST({column.duck} AS {'HUGEINT' if 'u64' in column.duck else 'BIGINT'})")
            return column
        if pick < 0.6:
            return both(self.rng.choice(("0", "1", "-2", "3", "0.5", "-1.25", "2.5", "NULL")))
        if pick < 0.9:
            operator = self.rng.choice("+-+-*")
            return fill("({0} " + operator + " {1})", self.number(depth - 1, exact), self.number(depth - 1, exact))
        return fill(
            self.rng.choice(("abs({0})", "(- {0})", "(CASE WHEN {0} > {1} THEN {0} ELSE {1} END)")),
            self.number(depth - 1, exact),
            self.number(depth - 1, exact),
        )

    def interval(self) -> Text:
        return both(self.rng.choice(INTERVALS))

    def instant(self) -> Text:
        column = self.column(INSTANTS)
        match self.rng.randrange(6):
            case 0:
                return fill("({0} + {1})", column, self.interval())
            case 1:
                return fill("({0} - {1})", column, self.interval())
            case 2:
                return both(self.rng.choice(("DATE '2024-02-28'", "TIMESTAMP '2024-02-28 12:05:00'")))
            case 3:
                return fill("({0} + {1})", self.column(("d",)), both(self.rng.choice(("1", "-1"))))
            case 4:
                return fill("({0} + INTERVAL 1 MONTH)", column)
        return column

    def text(self) -> Text:
        column = self.column(TEXTS)
        match self.rng.randrange(6):
            case 0:
                return both(self.rng.choice(("'a'", "'it''s'", "''", "'Ä'")))
            case 1:
                return fill("lower({0})", column)
            case 2:
                return fill("({0} || {1})", column, self.column(TEXTS))
            case 3:
                return fill("substring({0}, 1, 1)", column)
            case 4:
                return fill("coalesce({0}, 'none')", column)
        return column

    def test(self) -> Text:
        """IN, LIKE, IS NULL, BETWEEN and parts of dates."""
        match self.rng.randrange(7):
            case 0:
                return fill("{0} IN (1, {1}, NULL)", self.number(1), self.number(1))
            case 1:
                return fill("{0} NOT IN (1, 2, 3)", self.column(INTEGERS))
            case 2:
                return fill("{0} LIKE 'a%'", self.column(TEXTS))
            case 3:
                return fill("{0} IS {1}NULL", self.column(ALL), both(self.rng.choice(("", "NOT "))))
            case 4:
                return fill("{0} BETWEEN {1} AND {2}", self.number(1), self.number(1), self.number(1))
            case 5:
                return fill("day({0}) < day({1})", self.column(INSTANTS), self.column(INSTANTS))
            case _:
                return fill("length({0}) < {1}", self.column(TEXTS), self.column(INTEGERS))

    def shape(self) -> Text:
        """A shape that normalisation recognises."""
        sides = self.rng.sample("lr", 2)
        group = self.rng.choice((INTEGERS, INTEGERS, DECIMALS, FLOATS, {"f64": 0}, {"i32": 0, "p": 0, "f64": 0}))
        x, y = self.column(group, sides[0]), self.column(group, sides[1])
        x, y = (Text(c.spark, f"CAST({c.duck} AS BIGINT)") if ".i" in c.duck else c for c in (x, y))
        low, high = (both(self.rng.choice(("-2", "-0.5", "0", "1", "1.5", "3"))) for _ in range(2))
        less, more = self.rng.choice(("<", "<=")), self.rng.choice((">", ">="))
        match self.rng.randrange(10):
            case 0:
                return fill("abs({0} - {1}) " + less + " {2}", x, y, high)
            case 1:
                return fill("{2} " + more + " abs({0} - {1})", x, y, high)
            case 2:
                return fill("{0} - {1} BETWEEN {2} AND {3}", x, y, low, high)
            case 3:
                return fill("{0} " + more + " {1} + {2} AND {0} " + less + " {1} + {3}", x, y, low, high)
            case 4:
                return fill("{0} + {2} " + more + " {1} AND {0} " + less + " {1} + {3}", x, y, low, high)
            case 5:
                return fill("{0} - {1} " + self.rng.choice((less, more, "=", "!=")) + " {2}", x, y, high)
            case 6:
                return self.dates(sides, less, more)
            case 7:
                return fill("{0} - {1} " + less + " {1} - {0} + {2}", x, y, low)
            case 8:
                return fill(
                    "pow({0} - {1}, 2) + pow({2} - {3}, 2) " + less + " 4",
                    x,
                    y,
                    self.column(group, sides[0]),
                    self.column(group, sides[1]),
                )
            case _:
                return fill(
                    "{0} " + less + " {3} AND {2} " + more + " {1}",
                    x,
                    y,
                    self.column(group, sides[0]),
                    self.column(group, sides[1]),
                )

    def dates(self, sides: list[str], less: str, more: str) -> Text:
        x, y = self.column(("ts", "sec"), sides[0]), self.column(("ts", "sec"), sides[1])
        d, e = self.column(("d",), sides[0]), self.column(("d",), sides[1])
        match self.rng.randrange(4):
            case 0:
                return fill(
                    "{0} " + more + " {1} - {2} AND {0} " + less + " {1} + {3}", x, y, self.interval(), self.interval()
                )
            case 1:
                return fill("{0} - {1} " + less + " {2}", x, y, self.interval())
            case 2:
                spark = f"abs(datediff({d.spark}, {e.spark})) {less} 2"
                return Text(spark, f"abs({d.duck} - {e.duck}) {less} 2")
            case _:
                spark = f"{d.spark} - {e.spark} {less} INTERVAL 36 HOURS"
                return Text(spark, f"({d.duck} - {e.duck}) * 24 {less} 36")
