"""Conditions as Columns, with the equivalent SQL text. `outcomes` checks them all in a given session.

As a script, it runs in a Spark Connect session, which cannot share a process with a classic session, and prints the
outcomes as JSON.
"""

# ruff: noqa: E741  the sides of a join are l and r

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T  # noqa: N812

from dovetail.condition import Expression, read_sql, spark_sql
from dovetail.errors import ConditionError
from dovetail.spark.frames.binding import expression_of
from dovetail.spark.frames.schemas import arrow_schema

SCHEMA = (
    "id int, a double, b double, ts timestamp, d date, s string, flag boolean, `x.y` int, `we``ird` int, "
    "arr array<int>, st struct<f: int, g: struct<h: string>>, m map<string, int>"
)
Row = tuple[Any, ...]

ONE: Row = (1, 1.5, 2.0, datetime(2020, 1, 1, 12), date(2020, 1, 1), "abc", True, 1, 1, [1, 2], (1, ("x",)), {"k": 1})
TWO: Row = (2, -3.0, float("nan"), datetime(2020, 3, 2), date(2020, 2, 1), "a'x", False, 2, 3, [], (7, ("y",)), {})
NULLS = (None,) * len(ONE)
LEFT_ONLY, RIGHT_ONLY = "only_left int", "only_right int"


class Frames(NamedTuple):
    l: DataFrame
    r: DataFrame


Build = Callable[[DataFrame, DataFrame], Column]

SAME: dict[str, tuple[Build, str]] = {
    "less": (lambda l, r: l.a < r.b, "l.a < r.b"),
    "item": (lambda l, r: l["a"] >= r["b"], "l.a >= r.b"),
    "and": (lambda l, r: (l.a < r.b) & (l.id > r.id), "l.a < r.b AND l.id > r.id"),
    "or": (lambda l, r: (l.a < r.b) | (l.id == r.id), "l.a < r.b OR l.id = r.id"),
    "not": (lambda l, r: ~(l.a < r.b), "NOT (l.a < r.b)"),
    "not equal": (lambda l, r: l.s != r.s, "NOT (l.s = r.s)"),
    "null safe": (lambda l, r: l.a.eqNullSafe(r.b), "l.a <=> r.b"),
    "distance": (lambda l, r: F.abs(l.a - r.a) <= 3, "abs(l.a - r.a) <= 3"),
    "between": (lambda l, r: l.ts.between(r.ts, l.ts), "l.ts BETWEEN r.ts AND l.ts"),
    "interval": (
        lambda l, r: l.ts <= r.ts + F.expr("interval 1 hour 30 minutes"),
        "l.ts <= r.ts + INTERVAL 1 hour 30 minutes",
    ),
    "months": (lambda l, r: l.d <= r.d + F.expr("interval 2 months"), "l.d <= r.d + INTERVAL 2 months"),
    "timedelta": (
        lambda l, r: l.ts <= r.ts + F.lit(timedelta(days=1, hours=2)),
        "l.ts <= r.ts + INTERVAL '1 02:00:00.000000' DAY TO SECOND",
    ),
    "cast by name": (lambda l, r: l.a.cast("long") == r.id, "CAST(l.a AS BIGINT) = r.id"),
    "cast by type": (lambda l, r: l.a.cast(T.DecimalType(10, 2)) > r.id, "CAST(l.a AS DECIMAL(10,2)) > r.id"),
    "try_cast": (lambda l, r: l.s.try_cast("int") == r.id, "TRY_CAST(l.s AS INT) = r.id"),
    "expr": (lambda l, r: F.expr("l.a < r.b"), "l.a < r.b"),
    "expr inside": (lambda l, r: (F.expr("l.a + 1") * 2) < r.b, "(l.a + 1) * 2 < r.b"),
    "expr with dots": (lambda l, r: F.expr("l.`x.y` = r.`we``ird`"), "l.`x.y` = r.`we``ird`"),
    "expr with lambda": (
        lambda l, r: F.expr("exists(l.arr, id -> id > 1 and r.flag)"),
        "exists(l.arr, id -> id > 1 and r.flag)",
    ),
    "in": (lambda l, r: l.id.isin(1, 2) & r.flag, "l.id IN (1, 2) AND r.flag"),
    "in columns": (lambda l, r: l.id.isin([r.id, 3]), "l.id IN (r.id, 3)"),
    "in nothing": (lambda l, r: l.id.isin([]) | r.flag, "FALSE OR r.flag"),
    "is null": (lambda l, r: l.a.isNull() & r.a.isNotNull(), "l.a IS NULL AND r.a IS NOT NULL"),
    "is nan": (lambda l, r: l.b.isNaN() & r.flag, "isnan(l.b) AND r.flag"),
    "like": (lambda l, r: l.s.like("a%") & r.flag, "l.s LIKE 'a%' AND r.flag"),
    "ilike": (lambda l, r: l.s.ilike("A%") & r.flag, "l.s ILIKE 'A%' AND r.flag"),
    "rlike": (lambda l, r: l.s.rlike("^a") & r.flag, "l.s RLIKE '^a' AND r.flag"),
    "startswith": (lambda l, r: l.s.startswith("a") & r.flag, "startswith(l.s, 'a') AND r.flag"),
    "endswith": (lambda l, r: l.s.endswith(r.s), "endswith(l.s, r.s)"),
    "contains": (lambda l, r: l.s.contains(r.s), "contains(l.s, r.s)"),
    "when": (lambda l, r: F.when(l.a > 1, r.b).otherwise(0) > 2, "CASE WHEN l.a > 1 THEN r.b ELSE 0 END > 2"),
    "when without otherwise": (
        lambda l, r: F.when(l.id > 1, r.b).when(l.id > 0, r.a) > 1,
        "CASE WHEN l.id > 1 THEN r.b WHEN l.id > 0 THEN r.a END > 1",
    ),
    "arithmetic": (lambda l, r: (l.a + 1) * 2 - r.b / 4 > l.id % 2, "(l.a + 1) * 2 - r.b / 4 > l.id % 2"),
    "reversed": (lambda l, r: (2 - l.a) < (1 / (r.a + 9)), "2 - l.a < 1 / (r.a + 9)"),
    "negative": (lambda l, r: -l.a < r.b, "-l.a < r.b"),
    "power": (lambda l, r: l.a**2 < 2**r.a, "power(l.a, 2) < power(2, r.a)"),
    "bits": (lambda l, r: l.id.bitwiseAND(1) == r.id.bitwiseOR(1), "(l.id & 1) = (r.id | 1)"),
    "dots": (lambda l, r: l["`x.y`"] == r["`x.y`"], "l.`x.y` = r.`x.y`"),
    "backtick": (lambda l, r: l["`we``ird`"] < r["`we``ird`"], "l.`we``ird` < r.`we``ird`"),
    "field": (lambda l, r: l.st.f == r["st"]["f"], "l.st.f = r.st.f"),
    "field by name": (lambda l, r: l["st.g.h"] == r.st.g.h, "l.st.g.h = r.st.g.h"),
    "element": (lambda l, r: F.size(l.arr) > 0, "size(l.arr) > 0"),
    "map": (lambda l, r: l.m["k"] == r.id, "l.m['k'] = r.id"),
    "array element": (lambda l, r: F.get(l.arr, F.lit(0)) == r.id, "get(l.arr, 0) = r.id"),
    "substr": (lambda l, r: l.s.substr(1, 2) == r.s.substr(1, 2), "substr(l.s, 1, 2) = substr(r.s, 1, 2)"),
    "true": (lambda l, r: F.lit(True), "TRUE"),
    "null": (lambda l, r: l.a < F.lit(None), "l.a < NULL"),
    "text": (lambda l, r: (l.s == "a'x") | (r.s == '\\ \n"'), "l.s = 'a\\'x' OR r.s = '\\\\ \n\"'"),
    "date": (lambda l, r: (l.d > date(2020, 1, 15)) & r.flag, "l.d > DATE '2020-01-15' AND r.flag"),
    "timestamp": (
        lambda l, r: (l.ts > F.lit(datetime(2020, 1, 15, 1, 2, 3, 456, tzinfo=UTC))) & r.flag,
        "l.ts > TIMESTAMP '2020-01-15 01:02:03.000456+00:00' AND r.flag",
    ),
    "decimal": (lambda l, r: l.id > r.id + F.lit(Decimal("1.50")), "l.id > r.id + CAST('1.50' AS DECIMAL(3,2))"),
    "double": (lambda l, r: l.a < r.a + 1.25, "l.a < r.a + CAST('1.25' AS DOUBLE)"),
    "infinity": (lambda l, r: l.a < F.lit(float("inf")), "l.a < CAST('Infinity' AS DOUBLE)"),
    "long": (lambda l, r: l.id + r.id < 2**40, f"l.id + r.id < {2**40}L"),
    "bytes": (lambda l, r: l.s.cast("binary") == F.lit(b"abc"), "CAST(l.s AS BINARY) = X'616263'"),
    "alias": (lambda l, r: ((l.a + 1).alias("q") < r.b).alias("on"), "l.a + 1 < r.b"),
    "coalesce": (lambda l, r: F.coalesce(l.a, F.lit(0)) < r.b, "coalesce(l.a, 0) < r.b"),
    "greatest": (lambda l, r: F.greatest(l.a, r.a) > F.least(l.b, r.b), "greatest(l.a, r.a) > least(l.b, r.b)"),
    "round": (lambda l, r: F.round(l.a, 1) == F.floor(r.b), "round(l.a, 1) = floor(r.b)"),
    "texts": (lambda l, r: F.upper(l.s) == F.concat(r.s, F.lit("!")), "upper(l.s) = concat(r.s, '!')"),
    "trim": (lambda l, r: F.trim(l.s) == F.trim(r.s, F.lit("x")), "trim(l.s) = TRIM(BOTH 'x' FROM r.s)"),
    "dates": (lambda l, r: F.datediff(l.d, r.d) < F.year(l.ts), "datediff(l.d, r.d) < year(l.ts)"),
    "date_add": (lambda l, r: F.date_add(l.d, 3) > r.d, "date_add(l.d, 3) > r.d"),
    "date_trunc": (lambda l, r: F.date_trunc("month", l.ts) <= r.ts, "date_trunc('month', l.ts) <= r.ts"),
    "timestamp_diff": (
        lambda l, r: F.timestamp_diff("DAY", l.ts, r.ts) < 10,
        "timestampdiff(DAY, l.ts, r.ts) < 10",
    ),
    "extract": (lambda l, r: F.extract(F.lit("YEAR"), l.ts) == F.year(r.d), "date_part('YEAR', l.ts) = year(r.d)"),
    "levenshtein": (lambda l, r: F.levenshtein(l.s, r.s) < 3, "levenshtein(l.s, r.s) < 3"),
    "unknown on one side": (lambda l, r: F.soundex(l.s) == r.s, "soundex(l.s) = r.s"),
    "lambda": (
        lambda l, r: F.size(F.filter(l.arr, lambda x: x > r.id)) > 0,
        "size(filter(l.arr, `x_1` -> (`x_1` > r.id))) > 0",
    ),
    "call_function": (lambda l, r: F.call_function("abs", l.a) < r.b, "abs(l.a) < r.b"),
}
"""Over the same two DataFrames: a function that returns a Column, and equivalent text."""

ELSEWHERE: dict[str, tuple[Callable[[Frames], tuple[DataFrame, DataFrame, Column]], str]] = {
    "name on one side": (lambda f: (f.l, f.r, F.col("only_left") < F.col("only_right")), "l.only_left < r.only_right"),
    "name in other case": (
        lambda f: (f.l, f.r, F.col("ONLY_left") < F.col("Only_right")),
        "l.only_left < r.only_right",
    ),
    "aliases": (lambda f: (f.l.alias("x"), f.r.alias("y"), F.col("x.a") < F.col("y.b")), "l.a < r.b"),
    "aliases in expr": (
        lambda f: (f.l.alias("x"), f.r.alias("y"), F.expr("x.a < y.b AND x.st.f = 1")),
        "l.a < r.b AND l.st.f = 1",
    ),
    "alias that is a column": (lambda f: (f.l.alias("a"), f.r.alias("b"), F.col("a.id") < F.col("b.b")), "l.id < r.b"),
    "field of an aliased side": (lambda f: (f.l.alias("x"), f.r, F.col("x.st.g.h") == f.r.s), "l.st.g.h = r.s"),
    "column of an aliased side": (lambda f: (f.l.alias("x"), f.r, f.l.a < f.r.b), "l.a < r.b"),
    "our own aliases": (lambda f: (f.l, f.r, F.col("l.a") < F.col("r.b")), "l.a < r.b"),
    "filtered since": (lambda f: (f.l.where("id > 1"), f.r.limit(5), f.l.a < f.r.b), "l.a < r.b"),
    "more columns since": (lambda f: (f.l.withColumn("n", F.lit(1)), f.r, f.l.a < f.r.b), "l.a < r.b"),
    "self-join with aliases": (lambda f: (f.l.alias("x"), f.l.alias("y"), F.col("x.a") < F.col("y.b")), "l.a < r.b"),
    "self-join, each its own": (lambda f: _own(f.l.where("id > 1"), f.l.where("id < 9")), "l.a < r.b"),
    "swapped": (lambda f: (f.r, f.l, f.l.a < f.r.b), "r.a < l.b"),
}
"""Over other DataFrames that are derived from them."""

REFUSED: dict[str, tuple[Callable[[Frames], tuple[DataFrame, DataFrame, Column]], str]] = {
    "self-join": (lambda f: (f.l, f.l, f.l.a < f.l.b), "both sides come from the same DataFrame"),
    "self-join of descendants": (lambda f: (f.l.where("id > 1"), f.l.limit(3), f.l.a < f.l.b), "SQL text"),
    "name on both sides": (lambda f: (f.l, f.r, F.col("a") < 3), "a is on both sides"),
    "unknown name": (lambda f: (f.l, f.r, F.col("nope") < 3), "nope: no such column"),
    "unknown alias": (lambda f: (f.l, f.r, F.col("z.a") < 3), "neither DataFrame has the alias z"),
    "unknown name in expr": (lambda f: (f.l, f.r, F.expr("nope < 3")), "nope: no such column"),
    "another DataFrame": (lambda f: (f.l, f.r, f.l.sparkSession.range(3).id < f.r.b), "id belongs to neither"),
    "replaced since": (lambda f: (f.l.withColumn("a", F.lit(1.0)), f.r, f.l.a < f.r.b), "a belongs to neither"),
    "udf": (lambda f: (f.l, f.r, F.udf(lambda x: x, "int")(f.l.id) == f.r.id), "is a Python function (UDF)"),
    "aggregate": (lambda f: (f.l, f.r, F.sum(f.l.a) > f.r.a), "an aggregate function"),
    "window": (lambda f: (f.l, f.r, F.row_number().over(Window.orderBy(f.l.a)) > 1), "a window function"),
    "random": (lambda f: (f.l, f.r, F.rand() > f.r.a), "non-deterministic function"),
    "star": (lambda f: (f.l, f.r, F.col("*")), "a star"),
    "sort order": (lambda f: (f.l, f.r, f.l.a.desc()), "a sort order"),
    "new field": (lambda f: (f.l, f.r, f.l.st.withField("z", F.lit(1)).f == 1), "Pass the condition as SQL text"),
}


def _own(left: DataFrame, right: DataFrame) -> tuple[DataFrame, DataFrame, Column]:
    return left, right, left.a < right.b


NAMES = [*SAME, *ELSEWHERE, *REFUSED]


def frames(spark: SparkSession) -> Frames:
    left, right = (
        spark.createDataFrame([(*row, 0) for row in (ONE, TWO, NULLS)], f"{SCHEMA}, {only}")
        for only in (LEFT_ONLY, RIGHT_ONLY)
    )
    return Frames(left, right)


def outcomes(spark: SparkSession) -> dict[str, str]:
    """The problem of each case; empty if there is none."""
    both = frames(spark)
    found = {name: _differs(*both, column(*both), text) for name, (column, text) in SAME.items()}
    found |= _values_differ(both, [name for name in SAME if not found[name]])
    found |= {name: _differs(*given(both), text) for name, (given, text) in ELSEWHERE.items()}
    return found | {name: _accepted(*given(both), message) for name, (given, message) in REFUSED.items()}


def _differs(left: DataFrame, right: DataFrame, on: Column, text: str) -> str:
    try:
        got = _plain(expression_of(on, left, right))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    wanted = _plain(read_sql(text, (arrow_schema(left), arrow_schema(right))))
    return "" if got == wanted else f"got    {got}\nwanted {wanted}"


def _plain(expression: Expression) -> str:
    """The text without redundant parentheses and without names of lambda variables, which Spark numbers."""
    return re.sub(r"x_\d+", "x", str(expression))


def _values_differ(both: Frames, names: list[str]) -> dict[str, str]:
    """Let Spark evaluate each Column, and the text that Dovetail generates for it, on all pairs of rows."""
    pairs = both.l.alias("l").crossJoin(both.r.alias("r"))
    columns = []
    for number, name in enumerate(names):
        column = SAME[name][0](*both)
        ours = F.expr(spark_sql(expression_of(column, *both)))
        columns += [column.alias(f"given_{number}"), ours.alias(f"ours_{number}")]
    rows = pairs.select(*columns).collect()
    wrong = {}
    for number, name in enumerate(names):
        wanted, got = ([row[f"{kind}_{number}"] for row in rows] for kind in ("given", "ours"))
        if got != wanted:
            wrong[name] = f"Spark says {wanted}, and for our text {got}"
    return wrong


def _accepted(left: DataFrame, right: DataFrame, on: Column, message: str) -> str:
    try:
        got = expression_of(on, left, right)
    except ConditionError as error:
        return "" if message in str(error) else f"the message is: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"accepted as {got}"


if __name__ == "__main__":
    from dovetail.spark.session.java import ensure_java

    ensure_java()
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    json.dump(outcomes(session), sys.stdout)
    session.stop()
