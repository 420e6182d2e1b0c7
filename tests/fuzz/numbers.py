"""Random joins of three and four inputs on numbers of every width, in three dialects: ours, DuckDB's and Python's.

Python uses fractions where the join uses integers and decimals, so nothing wraps around or is rounded. Floats are
computed in the width of the join: two of 32 bits or less in 32 bits, everything else in 64.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import cycle, islice, product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tests.fuzz.columns import INF, NAN, typed
from tests.fuzz.extremes import COMPARE

ALIASES = "wxyz"
NAMES = ("v0", "v1", "v2")
ROWS = (0, 1, 4, *[7, 12] * 12)
LITERALS = ("0", "1", "2", "0.5", "1.25", "3")
BOUND = 2**63 - 16  # larger integers may overflow, depending on the order of evaluation
EXACT_IN_DUCKDB = "DECIMAL(38, 4)"

EXACT = {"whole", "decimal"}
ENDS = {bits: (2 ** (bits - 1) - 1, -(2 ** (bits - 1))) for bits in (8, 16, 32)}
DECIMAL_VALUES = tuple(map(Decimal, ("0", "1", "-1", "2.5", "0.1", "-1.25", "255")))
SMALL_FLOATS = (0.0, 1.0, -0.0, 2.5, 0.1, -1.0, 255.0, 2048.0, NAN, INF, -INF)
POOLS: dict[pa.DataType, Sequence[Any]] = {
    pa.int8(): (0, 1, 2, -1, 3, *ENDS[8]),
    pa.int16(): (0, 1, 2, -1, 255, *ENDS[16]),
    pa.int32(): (0, 1, 2, -1, 2049, *ENDS[32]),
    pa.int64(): (0, 1, 2, -1, 2**53, 2**53 + 1, 2**53 + 2, 2**62, 2**63 - 1, -(2**63)),
    pa.uint8(): (0, 1, 2, 3, 254, 255),
    pa.uint16(): (0, 1, 2, 2048, 2049, 65_504, 65_535),
    pa.uint32(): (0, 1, 2, 2**24, 2**24 + 1, 2**32 - 2, 2**32 - 1),
    pa.uint64(): (0, 1, 2, 3, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1),
    pa.decimal128(5, 2): DECIMAL_VALUES,
    pa.decimal64(12, 3): DECIMAL_VALUES,
    pa.decimal128(20, 0): tuple(map(Decimal, (0, 1, 2, -1, 2**63, 2**64 - 1, 2**64 - 2))),
    pa.decimal128(38, 4): (*DECIMAL_VALUES, Decimal("0.0001"), Decimal(10) ** 10),
    pa.float16(): (*SMALL_FLOATS, 65_504.0, 6e-8, 2050.0),
    pa.float32(): (*SMALL_FLOATS, float(np.float16(0.1)), 2049.0, 2.0**24, 2.0**63, 2.0**64, 6e-8),
    pa.float64(): (*SMALL_FLOATS, float(np.float16(0.1)), float(np.float32(0.1)), 2049.0, 2.0**53, 2.0**63, 2.0**64),
}
"""Values that are equal across types, or would be if one side were rounded to the other's width."""

OFTEN = (*[pa.uint64()] * 6, *[pa.float16()] * 4, pa.float32(), pa.int64())

Choose = Callable[[random.Random, Sequence[Any], int], Sequence[Any]]
CHOOSE: tuple[Choose, ...] = (
    lambda _, pool, most: pool[:most],
    lambda _, pool, most: pool[-most:],
    lambda rng, pool, most: rng.sample(pool, most),
)
"""Ways to choose a number of values of a type."""

Rows = Mapping[str, int]  # alias -> row number


class Limits:
    """Records whether an integer did not fit in 64 bits: then an error is also a correct answer."""

    def __init__(self) -> None:
        self.crossed = False

    def within(self, number: Any) -> Any:
        self.crossed |= abs(number) > BOUND
        return number


class Number(NamedTuple):
    """An expression of kind whole (64 bits), decimal (of any size), single or double."""

    sql: str
    duck: str
    duck_double: str | None  # None: DuckDB would round twice
    kind: str
    aliases: frozenset[str]
    value: Callable[[Rows], Any]  # a Fraction or a float; None is null


class Predicate(NamedTuple):
    sql: str
    duck: str
    aliases: frozenset[str]
    holds: Callable[[Rows], bool]


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    tables: dict[str, pa.Table]
    predicates: tuple[Predicate, ...]
    limits: Limits

    @property
    def on(self) -> str:
        return " AND ".join(predicate.sql for predicate in self.predicates)

    @property
    def duck(self) -> str:
        return " AND ".join(f"({predicate.duck})" for predicate in self.predicates)

    def results(self) -> list[tuple[int, ...]]:
        """The definition: all combinations of rows, filtered."""
        found: list[dict[str, int]] = [{}]
        for alias, table in self.tables.items():
            found = [{**rows, alias: row} for rows, row in product(found, range(len(table)))]
            for holding in self._tables_of_truth(frozenset(found[0]) if found else frozenset(), alias):
                found = [rows for rows in found if holding(rows)]
        return sorted(tuple(rows.values()) for rows in found)

    def overflows(self) -> bool:
        """Whether a predicate overflows for any combination of the rows that it reads."""
        for predicate in self.predicates:
            aliases = sorted(predicate.aliases)
            for rows in product(*(range(len(self.tables[alias])) for alias in aliases)):
                predicate.holds(dict(zip(aliases, rows, strict=True)))
        return self.limits.crossed

    def _tables_of_truth(self, known: frozenset[str], new: str) -> list[Callable[[Rows], bool]]:
        """The predicates that can be evaluated once `new` is known."""
        return [p.holds for p in self.predicates if new in p.aliases and p.aliases <= known]

    def __str__(self) -> str:
        """Everything needed to reproduce the case."""
        lines = [f"draw({self.seed})", f"on = {self.on!r}", f"duckdb = {self.duck!r}"]
        lines += [
            f"{alias} = pa.table({table.to_pydict()}, pa.schema({[(f.name, str(f.type)) for f in table.schema]}))"
            for alias, table in self.tables.items()
        ]
        return "\n".join(lines)


def draw(seed: int) -> Case:
    """Every input joins an earlier one; sometimes an edge closes a cycle, or a conjunct reads three inputs."""
    rng = random.Random(seed)
    aliases = ALIASES[: rng.choice((3, 3, 4))]
    tables = _tables(rng, aliases)
    numbers = Numbers(rng, tables)
    edges = [(rng.choice(aliases[:i]), aliases[i]) for i in range(1, len(aliases))]
    for _ in range(rng.choice((0, 0, 1, 2))):
        one, other = rng.sample(aliases, 2)
        edges.append((one, other))
    same = rng.choice(NAMES) if rng.random() < 0.3 else None  # one column joins all inputs
    predicates = [numbers.edge(*(edge if rng.random() < 0.5 else edge[::-1]), same) for edge in edges]
    if rng.random() < 0.15:
        predicates.append(numbers.of_three(*rng.sample(aliases, 3)))
    if rng.random() < 0.15:
        predicates.append(numbers.of_one(rng.choice(aliases)))
    rng.shuffle(predicates)
    return Case(seed, tables, tuple(predicates), numbers.limits)


def every_value(left: pa.DataType, right: pa.DataType) -> Case:
    """abs(z.v - x.v) <= 1 AND x.h = y.h over all values of both types, including null, and halffloats."""
    types = {"x": {"v": left, "h": pa.float16()}, "y": {"h": right}, "z": {"v": right}}
    tables = {}
    for alias, columns in types.items():
        rows = max(len(POOLS[type_]) for type_ in columns.values()) + 1
        cycles = {name: cycle((*POOLS[type_], None)) for name, type_ in columns.items()}
        arrays = {name: typed(list(islice(cycles[name], rows)), type_) for name, type_ in columns.items()}
        tables[alias] = pa.table({"row": pa.array(range(rows), pa.int64()), **arrays})
    numbers = Numbers(random.Random(0), tables)
    difference = numbers.arithmetic("-", numbers.column("z", "v"), numbers.column("x", "v"))
    near = numbers.compared(absolute(difference), "<=", numbers.literal("1"))
    same = numbers.compared(numbers.column("x", "h"), "=", numbers.column("y", "h"))
    return Case(0, tables, (near, same), numbers.limits)


def _tables(rng: random.Random, aliases: str) -> dict[str, pa.Table]:
    """Columns mostly have the same type in all inputs, and few values: the common ones, or the largest."""
    palette = rng.choice(((pa.uint64(), pa.float16()), rng.choices((*POOLS, *OFTEN), k=rng.choice((1, 2, 3)))))
    shared = {name: rng.choice(palette) for name in NAMES}
    most, nulls, choose = rng.choice((1, 2, 2, 3, 4)), rng.choice((0.0, 0.0, 0.1)), rng.choice(CHOOSE)
    tables = {}
    for alias in aliases:
        rows = rng.choice(ROWS)
        columns = {"row": pa.array(range(rows), pa.int64())}
        for name in NAMES:
            type_ = shared[name] if rng.random() < 0.8 else rng.choice(palette)
            few = choose(rng, POOLS[type_], most)
            columns[name] = typed([None if rng.random() < nulls else rng.choice(few) for _ in range(rows)], type_)
        tables[alias] = pa.table(columns)
    return tables


class Numbers:
    """Expressions and predicates over the columns of tables."""

    def __init__(self, rng: random.Random, tables: Mapping[str, pa.Table]) -> None:
        self.rng = rng
        self.tables = tables
        self.limits = Limits()

    def column(self, alias: str, name: str | None = None) -> Number:
        name = name or self.rng.choice(NAMES)
        column = self.tables[alias][name]
        kind, values = kind_of(column.type), exact_values(column)
        raw = f"{alias}.{name}"
        double = f"CAST({raw} AS DOUBLE)"
        duck = f"CAST({raw} AS {EXACT_IN_DUCKDB})" if kind in EXACT else raw
        return Number(raw, duck, double, kind, frozenset(alias), lambda rows: values[rows[alias]])

    def literal(self, text: str | None = None) -> Number:
        text = text or self.rng.choice(LITERALS)
        value = Fraction(text)
        kind = "decimal" if "." in text else "whole"
        duck = f"CAST({text} AS {EXACT_IN_DUCKDB})"
        return Number(text, duck, f"CAST({text} AS DOUBLE)", kind, frozenset(), lambda _: value)

    def edge(self, one: str, other: str, same: str | None) -> Predicate:
        name = same or self.rng.choice(NAMES)
        first, second = self.column(one, name), self.column(other, name if self.rng.random() < 0.7 else same)
        match self.rng.randrange(8):
            case 0 | 1 | 2:
                return self.compared(first, "=", second)
            case 3:
                return self.compared(first, self.rng.choice(("<", "<=", ">", ">=", "!=")), second)
            case 4 if first.kind in EXACT:
                return self.compared(self.computed(first), "=", self._exact(other))
            case 5 if first.kind in EXACT or second.kind not in EXACT:
                low = self.compared(first, ">=", self.arithmetic("-", second, self.literal()))
                high = self.compared(first, "<", self.arithmetic("+", second, self.literal()))
                return _both(low, high)
            case _:
                return self.band(first, second)

    def of_three(self, one: str, other: str, third: str) -> Predicate:
        return self.compared(self.arithmetic("-", self._exact(one), self._exact(other)), "<=", self._exact(third))

    def of_one(self, alias: str) -> Predicate:
        return self.compared(self.column(alias), self.rng.choice(tuple(COMPARE)), self.literal())

    def band(self, first: Number, second: Number) -> Predicate:
        less = self.rng.choice(("<", "<="))
        return self.compared(absolute(self.arithmetic("-", first, second)), less, self.literal())

    def computed(self, number: Number) -> Number:
        return self.arithmetic(self.rng.choice("+-"), number, self.literal())

    def _exact(self, alias: str) -> Number:
        """A column of integers or decimals; the row number if there is none."""
        schema = self.tables[alias].schema
        names = [name for name in NAMES if kind_of(schema.field(name).type) in EXACT]
        return self.column(alias, self.rng.choice(names) if names else "row")

    def arithmetic(self, operator: str, a: Number, b: Number) -> Number:
        sign = 1 if operator == "+" else -1
        kind = _common_kind(a, b)
        ways: dict[str, Callable[[Any, int, Any], Any]] = {
            "whole": self._whole,
            "decimal": _plain,
            "single": _single,
            "double": _double,
        }
        compute = ways[kind]
        a_duck, b_duck = (_spelled(number, kind) for number in (a, b))

        def value(rows: Rows) -> Any:
            x, y = a.value(rows), b.value(rows)
            return None if x is None or y is None else compute(x, sign, y)

        duck = f"({a_duck} {operator} {b_duck})"
        double = duck if kind == "double" else f"CAST({duck} AS DOUBLE)" if kind == "single" else None
        return Number(f"({a.sql} {operator} {b.sql})", duck, double, kind, a.aliases | b.aliases, value)

    def compared(self, a: Number, operator: str, b: Number) -> Predicate:
        kind = _common_kind(a, b)
        test = COMPARE[operator]

        def holds(rows: Rows) -> bool:
            x, y = a.value(rows), b.value(rows)
            if x is None or y is None:
                return False
            return test(x, y) if kind in EXACT else test(float(x), float(y))

        duck = f"{_spelled(a, kind)} {operator} {_spelled(b, kind)}"
        return Predicate(f"{a.sql} {operator} {b.sql}", duck, a.aliases | b.aliases, holds)

    def _whole(self, x: Fraction, sign: int, y: Fraction) -> Fraction:
        self.limits.within(x), self.limits.within(y)
        return Fraction(self.limits.within(x + sign * y))


def _both(first: Predicate, second: Predicate) -> Predicate:
    def holds(rows: Rows) -> bool:
        results = [first.holds(rows), second.holds(rows)]  # evaluate both: each may overflow
        return all(results)

    aliases = first.aliases | second.aliases
    return Predicate(f"{first.sql} AND {second.sql}", f"{first.duck} AND {second.duck}", aliases, holds)


def absolute(number: Number) -> Number:
    def value(rows: Rows) -> Any:
        found = number.value(rows)
        return None if found is None else abs(found)

    double = None if number.duck_double is None else f"abs({number.duck_double})"
    return number._replace(sql=f"abs({number.sql})", duck=f"abs({number.duck})", duck_double=double, value=value)


def kind_of(type_: pa.DataType) -> str:
    t = pa.types
    if t.is_float64(type_):
        return "double"
    if t.is_floating(type_):
        return "single"
    return "decimal" if t.is_decimal(type_) or t.is_uint64(type_) else "whole"


def exact_values(column: pa.ChunkedArray) -> list[Any]:
    """Values as fractions and floats; `to_pylist` returns NumPy scalars for halffloats."""
    is_float = pa.types.is_floating(column.type)
    return [v if v is None else float(v) if is_float else Fraction(v) for v in column.to_pylist()]


def _common_kind(a: Number, b: Number) -> str:
    kinds = {a.kind, b.kind}
    if len(kinds) == 1:
        return a.kind
    return "decimal" if kinds <= EXACT else "double"


def _spelled(number: Number, kind: str) -> str:
    """The form for DuckDB, which would cast a float and a decimal to a 32-bit float."""
    if kind != "double" or number.kind == "double":
        return number.duck
    assert number.duck_double is not None
    return number.duck_double


def _plain(x: Fraction, sign: int, y: Fraction) -> Fraction:
    return x + sign * y


def _single(x: float, sign: int, y: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(x) + np.float32(sign) * np.float32(y))


def _double(x: Any, sign: int, y: Any) -> float:
    return float(x) + sign * float(y)
