"""Keys and payload of every Spark type, against Spark's own join on the same condition.

Each type is a column of the same table, so that a job covers many of them: `l.day = r.day` is a condition, and all
columns of both tables are the payload of every join.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import reduce
from itertools import cycle
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import ALL, some

import dovetail

pytestmark = pytest.mark.spark

HOW = ("inner", "left", "full", "left_anti")
ROWS = (15, 13)


class Key(NamedTuple):
    """A column in SQL: its type in the left table, in the right table, and the values used in both."""

    left: str
    right: str
    values: str  # an array; its elements may be null


def _same(type_: str, values: str) -> Key:
    return Key(type_, type_, values)


FLOATS = "'NaN', 'Infinity', '-Infinity', '-0.0', '0.0', '1.5', '-2.5', NULL"
KEYS = {
    "day": _same("DATE", "'0001-01-01', '1969-12-31', '2024-02-29', '9999-12-31', NULL"),
    "instant": _same("TIMESTAMP", "'1500-01-01', '2024-03-31 02:30:00', '2024-03-31 03:30:00.000001', NULL"),
    "local": _same("TIMESTAMP_NTZ", "'1500-01-01', '2024-03-31 02:30:00', '2024-03-31 03:30:00.000001', NULL"),
    "clocks": Key("TIMESTAMP", "TIMESTAMP_NTZ", "'2024-03-31 01:30:00', '2024-03-31 03:30:00', '2024-07-01', NULL"),
    "days": Key("DATE", "TIMESTAMP", "'2024-03-31', '2024-04-01', '2024-03-30', NULL"),
    "whole": _same("DECIMAL(38,0)", f"'{'9' * 38}', '-{'9' * 38}', '{'9' * 37}8', '0', '1', NULL"),
    "fraction": _same("DECIMAL(38,38)", f"'0.{'9' * 38}', '-0.{'9' * 38}', '0.{'0' * 37}1', '0', NULL"),
    "price": Key("DECIMAL(10,2)", "DECIMAL(12,4)", "'1.50', '1.5001', '-99999999.99', '0', '0.01', NULL"),
    "bytes": _same("BINARY", "'', 'a', 'ab', '\\0', 'é', NULL"),
    "text": _same("STRING", "'', 'a', 'ab', 'A', 'é', 'e', '日本', NULL"),
    "small": Key("BYTE", "SHORT", "'-128', '127', '0', '1', NULL"),
    "middle": Key("SHORT", "INT", "'-32768', '32767', '0', '1', NULL"),
    "large": Key("INT", "LONG", "'-2147483648', '2147483647', '0', NULL"),
    "wide": Key("LONG", "BYTE", "'0', '1', '127', '-128', NULL"),
    "number": Key("LONG", "DOUBLE", "'9007199254740992', '9007199254740993', '0', '-1', NULL"),
    "exact": Key("LONG", "DECIMAL(38,4)", "'9223372036854775807', '-9223372036854775808', '0', NULL"),
    "single": _same("FLOAT", FLOATS),
    "double": _same("DOUBLE", FLOATS),
    "floats": Key("FLOAT", "DOUBLE", f"'0.1', {FLOATS}"),
    "flag": _same("BOOLEAN", "'true', 'false', NULL"),
    "span": _same("INTERVAL DAY TO SECOND", "'0 00:00:00', '1 02:03:04.000005', '-1 00:00:00', NULL"),
    "months": _same("INTERVAL YEAR TO MONTH", "'0-0', '1-2', '-3-0', NULL"),
}
NESTED = {
    "pair": "named_struct('a', small, 'b', text)",
    "list": "array(single, CAST(middle AS FLOAT))",
    "deep": "array(named_struct('d', day, 'n', CAST(price AS DECIMAL(12,4)), 'f', array(flag)))",
}
TOGETHER = ("middle", "large", "flag")  # keys that are hashed together
PAYLOAD = {
    "entries": "map('k', day)",
    "nothing": "NULL",
    "nothings": "array(NULL)",
    "calendar": "make_interval(1, 2, 0, id, 0, 0, 7.5)",
}


def table(spark: SparkSession, side: int) -> DataFrame:
    """Values drawn with a hash: independently per column, and always the same."""
    columns = []
    for name, key in KEYS.items():
        values = f"array({key.values})"
        columns.append(
            f"CAST(get({values}, pmod(hash(id, '{name}', {side}), size({values}))) AS {key[side]}) AS {name}"
        )
    more = [f"{sql} AS {name}" for name, sql in (NESTED | PAYLOAD).items()]
    return spark.range(ROWS[side]).selectExpr("int(id) AS id", *columns).selectExpr("*", *more)


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Both tables, in a time zone with summer time."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    left, right = (table(spark, side).coalesce(1).cache() for side in (0, 1))
    yield left, right
    spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


def rows_of(frame: DataFrame) -> Counter[str]:
    """Rows as strings: NaN is not equal to itself, maps have no hash, and month intervals cannot be collected."""
    numbered = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
    return Counter(str(tuple(row)) for row in numbered.selectExpr("CAST(struct(*) AS STRING)").collect())


class Join(NamedTuple):
    columns: tuple[str, ...]  # used in the condition
    on: str
    how: str

    def pairs(self, frames: tuple[DataFrame, DataFrame]) -> DataFrame:
        """The row numbers of our join."""
        left, right = (frame.select("id", *self.columns) for frame in frames)
        joined = dovetail.join(left, right, self.on, self.how, sample=False, cells=2)
        return joined.select("id", "id_right" if "id_right" in joined.columns else F.lit(None).cast("int"))

    def expected(self, matching: set[tuple[int, int]]) -> Counter[tuple[int | None, ...]]:
        """The result of the join type for the matching pairs."""
        alone = [set(range(rows)) - {pair[side] for pair in matching} for side, rows in enumerate(ROWS)]
        if self.how == "left_anti":
            return Counter((row, None) for row in alone[0])
        found: Counter[tuple[int | None, ...]] = Counter(matching)
        if self.how in ("left", "full"):
            found.update((row, None) for row in alone[0])
        if self.how == "full":
            found.update((None, row) for row in alone[1])
        return found


def pairs_by_spark(frames: tuple[DataFrame, DataFrame], conditions: list[str]) -> list[set[tuple[int, int]]]:
    """The pairs for which each condition is true, all in one job."""
    pairs = frames[0].alias("l").join(frames[1].alias("r"), F.lit(True))
    rows = pairs.selectExpr("l.id", "r.id", f"array({', '.join(conditions)})").collect()
    return [{(left, right) for left, right, true in rows if true[i]} for i in range(len(conditions))]


@pytest.mark.one_in(2)
def test_keys(frames: tuple[DataFrame, DataFrame]) -> None:
    """Every type compared by order, three at a time; every other type, or all, by equality, in an outer join."""
    names, outer = [*KEYS, *NESTED], "full" if ALL else "left"  # a full join takes two passes
    joins = [Join((name,), f"l.{name} = r.{name}", outer) for name in some(names, 0, of=2) if name not in TOGETHER]
    joins.append(Join(TOGETHER, " AND ".join(f"l.{name} = r.{name}" for name in TOGETHER), outer))
    for how, start in zip(cycle(HOW), range(0, len(names), 3), strict=False):
        columns = tuple(names[start : start + 3])
        compared = [f"l.{name} {operator} r.{name}" for name, operator in zip(columns, ("<", ">=", "<="), strict=False)]
        joins.append(Join(columns, " AND ".join(compared), how))
    matching = pairs_by_spark(frames, [join.on for join in joins])
    found: list[Counter[tuple[int | None, ...]]] = [Counter() for _ in joins]
    numbered = [join.pairs(frames).select(F.lit(number), "*") for number, join in enumerate(joins)]
    for number, *pair in reduce(DataFrame.union, numbered).collect():
        found[number][tuple(pair)] += 1
    for join, ours, pairs in zip(joins, found, matching, strict=True):
        assert ours == join.expected(pairs), join
        assert 0 < len(pairs) < ROWS[0] * ROWS[1], f"{join} shows nothing"


@pytest.mark.parametrize("how", ["full", *(pytest.param(how, marks=pytest.mark.slow) for how in HOW if how != "full")])
def test_payload(frames: tuple[DataFrame, DataFrame], how: str) -> None:
    on = "l.small = r.small AND l.text <= r.text"
    ours = dovetail.join(*frames, on, how, sample=False, cells=2)
    expected = frames[0].alias("l").join(frames[1].alias("r"), F.expr(on), how)
    assert [type_ for _, type_ in ours.dtypes] == [type_ for _, type_ in expected.dtypes]
    assert rows_of(ours) == rows_of(expected)
