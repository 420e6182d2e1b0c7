"""Expressions as Spark SQL and as short text."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.condition.schemas import LEFT, RIGHT

from dovetail.condition import Call, Column, Expression, Literal, Opaque, bind, quote_name, read_sql, spark_sql, text_of
from dovetail.core.rows import Side

LISTS = "SQRT(AGGREGATE(ZIP_WITH(l.`v`, r.`v`, (p, q) -> POWER(p - q, 2)), 0D, (total, x) -> total + x))"


def bound(text: str) -> Expression:
    return bind(read_sql(text, (LEFT, RIGHT)), LEFT, RIGHT)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("l.x = r.x", "l.`x` = r.`x`"),
        ("l.x + 5 < r.x", "CAST(l.`x` AS BIGINT) + 5L < CAST(r.`x` AS BIGINT)"),
        ("l.`tick``` = 1", "l.`tick``` = 1L"),
        ("l.tiny = 5", "l.`tiny` = 5Y"),
        ("l.only_left = 5", "l.`only_left` = 5S"),
        ("l.price < 1.5", "l.`price` < CAST('1.50' AS DECIMAL(10,2))"),
        ("l.y < 0.1", "l.`y` < CAST('0.1' AS DOUBLE)"),
        ("l.y = CAST('-inf' AS DOUBLE)", "l.`y` = CAST('-Infinity' AS DOUBLE)"),
        (r"l.s = 'it\'s \\d'", r"l.`s` = 'it\'s \\d'"),
        ("l.s LIKE 'a%' OR l.s NOT LIKE 'b'", "l.`s` LIKE 'a%' OR l.`s` NOT LIKE 'b'"),
        ("l.x IS NOT NULL AND l.y IS NULL", "l.`x` IS NOT NULL AND l.`y` IS NULL"),
        ("l.x NOT IN (1, NULL)", "l.`x` NOT IN (1, CAST(NULL AS INT))"),
        ("NOT (l.x = 1 OR l.flag)", "NOT (l.`x` = 1 OR l.`flag`)"),
        ("l.d = DATE '2020-01-01'", "l.`d` = DATE '2020-01-01'"),
        ("l.t = TIMESTAMP '2020-01-01 01:00:00'", "l.`t` = TIMESTAMP_NTZ '2020-01-01 01:00:00'"),
        ("l.tz = TIMESTAMP '2020-01-01 01:00:00.5+01:00'", "l.`tz` = TIMESTAMP '2020-01-01 00:00:00.500000+00:00'"),
        ("l.t + INTERVAL 90 SECONDS < r.t", "l.`t` + INTERVAL '0 00:01:30.000000' DAY TO SECOND < r.`t`"),
        ("l.t - r.t > INTERVAL -36 HOURS", "l.`t` - r.`t` > INTERVAL '-1 12:00:00.000000' DAY TO SECOND"),
        ("l.d + 5 < r.d", "l.`d` + INTERVAL '5' DAY < r.`d`"),
        ("l.d + l.x < r.d", "DATE_ADD(l.`d`, CAST(CAST(l.`x` AS BIGINT) AS INT)) < r.`d`"),
        ("l.d - l.tiny < r.d", "DATE_SUB(l.`d`, CAST(CAST(l.`tiny` AS BIGINT) AS INT)) < r.`d`"),
        ("l.d + INTERVAL 2 MONTHS < r.d", "l.`d` + INTERVAL '2' MONTH < r.`d`"),
        ("l.d = r.t", "CAST(l.`d` AS TIMESTAMP_NTZ) = r.`t`"),
        ("CASE WHEN l.flag THEN 1 END = 1", "CASE WHEN l.`flag` THEN 1 ELSE CAST(NULL AS INT) END = 1"),
        ("abs(l.id - r.id) * 2 > 3", "ABS(l.`id` - r.`id`) * 2L > 3L"),
        ("l.id - (r.id - 1) > 3", "l.`id` - (r.`id` - 1L) > 3L"),
        ("-l.id * -(-r.id) > 3", "-l.`id` * -(-r.`id`) > 3L"),
        ("l.id - (-5) > 3", "l.`id` - -5L > 3L"),
        ("l.point.B.c = 'x'", "l.`point`.`B`.`c` = 'x'"),
        ("l.x <=> r.x", "l.`x` <=> r.`x`"),
        (
            "distance(l.y, l.xmin, r.y, r.xmin) < 1",
            "SQRT(POWER(l.`y` - r.`y`, 2) + POWER(l.`xmin` - r.`xmin`, 2)) < CAST('1.0' AS DOUBLE)",
        ),
        (
            "distance(l.v, r.v) < 1",
            f"{LISTS} < CAST('1.0' AS DOUBLE)",
        ),
        ("(l.start, l.end) OVERLAPS (r.start, r.end)", "l.`start` < r.`end` AND l.`end` > r.`start`"),
        ("soundex(l.s) = r.s", "soundex(l.`s`) = r.`s`"),
        ("date_trunc('day', l.t) = r.t", "DATE_TRUNC('day', l.`t`) = r.`t`"),
    ],
)
def test_spark_sql(text: str, sql: str) -> None:
    assert spark_sql(bound(text)) == sql


def test_the_caller_names_the_columns() -> None:
    expression = bound("l.x = r.x AND soundex(l.s) = r.s")
    spelled = spark_sql(expression, lambda c: quote_name(f"{c.name}_{c.side.alias}"))
    assert spelled == "`x_l` = `x_r` AND soundex(`s_l`) = `s_r`"


def test_unbound_expressions_can_be_rendered() -> None:
    column = Column(Side.LEFT, "x")
    expression = Call("and", (Call("<", (Call("neg", (Literal(-5),)), column)), Opaque("f(l.x)", (column,))))
    assert spark_sql(expression) == "-(-5) < l.`x` AND f(l.`x`)"


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("l.x + 5 < r.id", "l.x + 5 < r.id"),
        ("l.x < r.y", "l.x < r.y"),
        ("l.price + 1 < r.x", "l.price + 1 < r.x"),
        ("CAST(l.s AS INT) = r.x", "CAST(l.s AS INT) = r.x"),
        ("l.`a b` = l.`p.q`", "l.`a b` = l.`p.q`"),
        ("l.t < r.t + INTERVAL 90 MINUTES", "l.t < r.t + 90 minutes"),
        ("l.t < r.t + INTERVAL 1 HOUR", "l.t < r.t + 1 hour"),
        ("l.t < r.t + INTERVAL '0.5' SECONDS", "l.t < r.t + 0.5 seconds"),
        ("abs(l.y) < sqrt(r.y)", "abs(l.y) < sqrt(r.y)"),
        ("l.price < 5", "l.price < 5.00"),
        ("l.point.B.c = 'x'", "l.point.B.c = 'x'"),
        ("(l.flag OR r.flag) AND NOT l.flag", "(l.flag OR r.flag) AND NOT l.flag"),
    ],
)
def test_short_text(text: str, short: str) -> None:
    assert text_of(bound(text)) == short


@pytest.mark.parametrize(
    ("literal", "sql"),
    [
        (Literal(None), "NULL"),
        (Literal(True), "TRUE"),
        (Literal(5), "5"),
        (Literal(2**40), "1099511627776L"),
        (Literal(Decimal("1E+2")), "CAST('100' AS DECIMAL(3,0))"),
        (Literal(1e300), "CAST('1e+300' AS DOUBLE)"),
        (Literal(float("nan")), "CAST('NaN' AS DOUBLE)"),
        (Literal(b"\x00\xff"), "X'00FF'"),
        (Literal(dt.time(1, 2, 3)), "TIME '01:02:03'"),
        (Literal(dt.timedelta(days=-2)), "INTERVAL '-2' DAY"),
        (Literal(1_500_000_001, pa.duration("ns")), "INTERVAL '0 00:00:01.500000' DAY TO SECOND"),
        (Literal(1_500_000_001, pa.timestamp("ns")), "TIMESTAMP_NTZ '1970-01-01 00:00:01.500000'"),
    ],
)
def test_constants(literal: Literal, sql: str) -> None:
    assert spark_sql(literal) == sql
