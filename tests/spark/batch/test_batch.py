"""Joins of DataFrames at rest: the same rows as Spark's own join on the same condition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.effort import cases_of, some

import dovetail
from dovetail.errors import BudgetError, ConditionError, InputError, PlanError
from dovetail.spark.batch.tables import in_fixed_order

pytestmark = pytest.mark.spark

NAMES = ["Robert", "Rupert", "Ashcraft", "Ashcroft", "Tymczak", "", None, "ünï", "a%b"]
FLOATS = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, None, 2.5]
START = datetime(2024, 3, 30, 22)  # the weekend on which summer time starts in Berlin


def made(columns: dict[str, tuple[pa.DataType, Sequence[Any]]], rows: int) -> pa.Table:
    """A table in which every column cycles through its values, with its own period."""
    return pa.table(
        {
            name: pa.array([values[row % len(values)] for row in range(rows)], type_)
            for name, (type_, values) in columns.items()
        }
    )


LEFT = made(
    {
        "id": (pa.int64(), range(57)),
        "k": (pa.int32(), [1, 2, 3, None, 2, 5, 8]),
        "name": (pa.string(), NAMES),
        "price": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("2.25"), None, Decimal("-3.00")]),
        "day": (pa.date32(), [date(2024, 3, 30), None, date(2024, 3, 31)]),
        "at": (pa.timestamp("us", "UTC"), [START + timedelta(minutes=30 * i) for i in range(11)]),
        "flag": (pa.bool_(), [True, False, None, True, True]),
        "x": (pa.float64(), FLOATS),
    },
    57,
)
RIGHT = made(
    {
        "number": (pa.int32(), range(43)),
        "k": (pa.int64(), [2, None, 3, 9, 1]),
        "small": (pa.int8(), [1, 3, 5, 7, None]),
        "name": (pa.string(), [*NAMES[::-1], "Rubin"]),
        "code": (pa.string(), ["R163", "A261", None, "T522"]),
        "price": (pa.decimal128(20, 4), [Decimal("2.2500"), Decimal("1.5001"), Decimal("1.5000"), None]),
        "day": (pa.date32(), [date(2024, 3, 31), date(2024, 4, 1), None]),
        "at": (pa.timestamp("us", "UTC"), [START + timedelta(hours=i) for i in range(7)]),
        "local": (pa.timestamp("us"), [START + timedelta(hours=i) for i in range(5)]),
        "flag": (pa.bool_(), [None, True, False]),
        "x": (pa.float64(), FLOATS[::-1]),
        "f": (pa.float32(), [1.5, None, float("nan"), -0.0]),
    },
    43,
)


@pytest.fixture(scope="module")
def left(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(LEFT).repartition(2).cache()


@pytest.fixture(scope="module")
def right(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(RIGHT).repartition(2).cache()


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def rows_of(frame: DataFrame) -> Counter[str]:
    """The rows as a multiset of strings, because NaN is not equal to itself and maps have no hash."""
    return Counter(str(tuple(row)) for row in frame.collect())


def spark_join(left: DataFrame, right: DataFrame, condition: str) -> DataFrame:
    return left.alias("l").join(right.alias("r"), F.expr(condition))


def rows_of_each(frames: dict[str, DataFrame]) -> dict[str, Counter[str]]:
    """The rows of DataFrames whose columns have the same types, in one job."""
    named = [
        frame.toDF(*(f"c{n}" for n in range(len(frame.columns)))).withColumn("of", F.lit(name))
        for name, frame in frames.items()
    ]
    found: dict[str, Counter[str]] = {name: Counter() for name in frames}
    for *row, name in reduce(DataFrame.union, named).collect():
        found[name][str(tuple(row))] += 1
    return found


def check(left: DataFrame, right: DataFrame, conditions: Sequence[str], **options: Any) -> None:
    """Check that our rows are Spark's rows, and that there are some."""
    ours = rows_of_each({c: dovetail.join(left, right, c, **options) for c in conditions})
    expected = rows_of_each({c: spark_join(left, right, c) for c in conditions})
    for condition in conditions:
        assert expected[condition], f"{condition} shows nothing"
        assert ours[condition] == expected[condition], condition


EQUALITIES = [
    "l.k = r.k",  # int = bigint
    "l.k = r.small",  # int = tinyint
    "l.name = r.name",
    "l.price = r.price",  # decimals of different scale
    "l.day = r.day",
    "l.at = r.at",
    "l.flag = r.flag",
    "l.x = r.x",  # NaN = NaN, -0.0 = 0.0
    "l.x = r.f",
    "l.k = r.k AND l.name = r.name",
    "l.k = r.k AND l.flag = r.flag AND l.x <= r.x",
    "l.k + 1 = r.small * 2 AND l.name LIKE 'A%'",
]
OTHERS = [
    "l.x < r.x",
    "l.k != r.k",
    "l.k <=> r.k",
    "l.k = r.k OR l.name = r.name",
    "l.name LIKE concat(r.name, '%')",
    "l.k BETWEEN r.k - 1 AND r.small",
    "l.k > 2 AND r.flag",  # no predicate between the sides
    "l.k IS NULL AND r.x < 1",
    "l.day < r.day AND l.price >= r.price",
    "TRUE",
]
BY_SPARK = [
    "soundex(l.name) = r.code",
    "levenshtein(l.name, r.name) < 2",
    "l.k = r.k AND levenshtein(l.name, r.name) < 6",
    "pmod(hash(l.name), 3) = pmod(hash(r.name), 3) AND length(reverse(r.name)) > 1",
    "l.k = r.k AND current_date() > DATE '2020-01-01'",
]
NOTHING = ["FALSE", "l.k = r.k AND 1 = 0", "l.k = r.k AND l.id < 0", "l.id = r.k + 1000"]
CONDITIONS = [*EQUALITIES, *OTHERS, *BY_SPARK, *NOTHING]

Answers = dict[str, tuple[Counter[str], Counter[str]]]


@pytest.fixture(scope="module")
def answers(left: DataFrame, right: DataFrame, request: pytest.FixtureRequest) -> Answers:
    """Our rows, for the conditions of this run, and Spark's, for all conditions, from one cross join."""
    tried = cases_of(request, "test_condition", "condition")
    ours = rows_of_each({c: dovetail.join(left, right, c, sample=False, cells=3) for c in tried}) if tried else {}
    expected: dict[str, Counter[str]] = {c: Counter() for c in CONDITIONS}
    holds = F.array(*map(F.expr, CONDITIONS))
    for *row, true in left.alias("l").crossJoin(right.alias("r")).select("l.*", "r.*", holds).collect():
        for condition in (c for c, is_true in zip(CONDITIONS, true, strict=True) if is_true):
            expected[condition][str(tuple(row))] += 1
    return {c: (ours.get(c, Counter()), expected[c]) for c in CONDITIONS}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_condition(answers: Answers, condition: str) -> None:
    ours, expected = answers[condition]
    assert bool(expected) is (condition not in NOTHING), "the case shows nothing"
    assert ours == expected


def test_with_a_sample(left: DataFrame, right: DataFrame, answers: Answers) -> None:
    conditions = ["l.k = r.k", "l.x < r.x"]
    ours = rows_of_each({c: dovetail.join(left, right, c) for c in conditions})
    for condition in conditions:
        assert ours[condition] == answers[condition][1]


def test_names_and_columns(left: DataFrame, right: DataFrame, answers: Answers) -> None:
    given: dict[str, Any] = {
        "l.k = r.k": left.k == right.k,
        "l.k = r.k AND l.name = r.name": [left.k == right.k, "l.name = r.name"],
        "l.k = r.k AND l.flag = r.flag AND l.x <= r.x": [left.k == right.k, "l.flag = r.flag", left.x <= right.x],
        "l.k != r.k": left.k != right.k,
    }
    ours = rows_of_each({c: dovetail.join(left, right, on, sample=False, cells=2) for c, on in given.items()})
    for condition in given:
        assert ours[condition] == answers[condition][1]


@pytest.mark.one_in(3)
def test_any_number_of_cells(left: DataFrame, right: DataFrame, answers: Answers) -> None:
    cases = some([(condition, cells) for condition in ("l.k = r.k", "l.x < r.x") for cells in (1, 2, 7)], 0, of=2)
    ours = rows_of_each({str(c): dovetail.join(left, right, c[0], cells=c[1], sample=False) for c in cases})
    for condition, cells in cases:
        assert ours[str((condition, cells))] == answers[condition][1]


def test_session_time_zone(spark: SparkSession, left: DataFrame, right: DataFrame) -> None:
    with setting(spark, "spark.sql.session.timeZone", "Europe/Berlin"):
        check(left, right, ["l.at = r.at", "l.at = r.local", "l.at > r.day"], sample=False, cells=2)


def test_empty_and_tiny_inputs(spark: SparkSession) -> None:
    ours, expected = {}, {}
    for lefts, rights in [(0, 0), (0, 5), (5, 0), (1, 1)]:
        one = spark.range(lefts).selectExpr("id AS k", "'a' AS a")
        other = spark.range(rights).selectExpr("id AS k", "'b' AS b")
        for condition in some(("l.k = r.k", "l.k <= r.k"), lefts, of=2):
            case = f"{condition}, {lefts} x {rights} rows"
            ours[case] = dovetail.join(one, other, condition, sample=lefts == rights)
            expected[case] = spark_join(one, other, condition)
            assert ours[case].columns == ["k", "a", "k_right", "b"]
    assert rows_of_each(ours) == rows_of_each(expected)


def test_self_join(left: DataFrame) -> None:
    check(left, left, ["l.k = r.k AND l.id < r.id"], sample=False, cells=2)


# Skew.


def test_heavy_key_is_split(spark: SparkSession) -> None:
    heavy = spark.range(4000).selectExpr("IF(id < 3000, 7, id) AS k", "id AS a")
    light = spark.range(30).selectExpr("id AS k", "id * 10 AS b")
    plan = dovetail.explain(heavy, light, "l.k = r.k", cells=5)
    assert "heavy keys that are split: 1" in str(plan)
    check(heavy, light, ["l.k = r.k"], cells=5)


@pytest.mark.one_in(3)
def test_heavy_key_of_rows_that_are_all_the_same(spark: SparkSession) -> None:
    """Only their numbers distinguish the rows, and maps cannot be hashed; still every pair is found once."""
    same = spark.range(3000).selectExpr("7 AS k", "map('a', parse_json('1')) AS m")
    other = spark.range(3).selectExpr("7 AS k", "array(map(1, id)) AS n")
    assert "heavy keys that are split: 1" in str(dovetail.explain(same, other, "l.k = r.k", cells=4))
    assert dovetail.join(same, other, "l.k = r.k", cells=4).groupBy("n").count().collect()[0]["count"] == 3000


@pytest.mark.one_in(3)
def test_cells_of_a_heavy_key_share_its_rows(spark: SparkSession) -> None:
    same = spark.range(4000).selectExpr("7 AS k", "id AS a")
    other = spark.range(2).selectExpr("7 AS k")
    parts = dovetail.join(same, other, "l.k = r.k", cells=4).groupBy(F.spark_partition_id()).count().collect()
    assert len(parts) == 4
    assert max(part["count"] for part in parts) < 2 * 8000 / 4


def test_rows_are_dealt_out_alike_when_a_task_runs_again(spark: SparkSession) -> None:
    """By their content, in any order of arrival: when a task is repeated, the order may differ."""
    columns = [
        "id % 50 AS a",
        "map('x', id % 3) AS m",
        "array(parse_json(string(id % 5))) AS v",
        "IF(id % 2 = 0, id, NULL)",
    ]
    point = "st_geomfromwkb(IF(id % 2 = 0, X'010100000000000000000000000000000000000000', NULL)) AS g"
    names = [f"c{i}" for i in range(6)]
    orders = [
        in_fixed_order(ids.selectExpr("id", *columns, point).toDF(*names)).collect()
        for ids in (spark.range(0, 300, 1, 1), spark.range(299, -1, -1, 1))
    ]
    assert [str(row) for row in orders[0]] == [str(row) for row in orders[1]]
    assert [row.c0 for row in orders[0]] != sorted(row.c0 for row in orders[0])


# Memory.


def test_nested_loop_spills(spark: SparkSession) -> None:
    one, other = spark.range(3000), spark.range(2000).selectExpr("id AS n", "repeat('x', 50) AS pad")
    result = dovetail.join(one, other, "l.id < r.n", memory="100KB", cells=1, sample=False)
    assert result.count() == sum(range(2000))


def test_parameters_of_an_algorithm(left: DataFrame, right: DataFrame) -> None:
    """As in process, they reach the operator, and invalid ones are rejected before anything runs."""
    options: dict[str, Any] = {"algorithm": "rpj", "memory": "1MB", "cells": 2}
    found = dovetail.join(left, right, "l.k = r.k", n_flush=0.1, **options)
    assert found.count() == left.join(right, left["k"] == right["k"]).count()
    assert dovetail.explain(left, right, "l.k = r.k", n_flush=0.1, **options).parameters == {"n_flush": 0.1}
    with pytest.raises(InputError, match="n_flush and decay are shares"):
        dovetail.join(left, right, "l.k = r.k", n_flush=2.0, **options)
    with pytest.raises(InputError, match="regions: not a parameter of algorithm='rpj'"):
        dovetail.join(left, right, "l.k = r.k", regions=5, **options)


def test_hash_join_takes_as_many_cells_as_its_memory_needs(spark: SparkSession) -> None:
    """With long strings, whose size cannot be seen from the types."""
    one = spark.range(20_000).selectExpr("id AS k", "repeat('x', 300) AS pad")
    other = spark.range(20_001).selectExpr("id AS k")
    plan = dovetail.explain(one, other, "l.k = r.k", memory="1MB")
    assert plan.cells > 7
    assert dovetail.join(one, other, "l.k = r.k", memory="1MB").count() == 20_000


def test_too_little_memory(left: DataFrame, right: DataFrame) -> None:
    for condition in ("l.k = r.k", "l.k < r.k"):
        with pytest.raises(BudgetError, match="Give 65,536 bytes or more"):
            dovetail.join(left, right, condition, memory=1000)


# Payload of any type.

PAYLOAD = {
    "nested": "array(map('a', struct(array(id, NULL) AS x, map(id, struct(cast(id AS STRING) AS s)) AS m)), NULL)",
    "bytes": "cast(cast(id AS STRING) AS BINARY)",
    "rare": "IF(id % 5 = 0, cast(id AS STRING), NULL)",
    "wide": "cast(id AS DECIMAL(38,18)) / 7",
    "instant": "timestamp_seconds(1700000000 + id * 86400)",
    "local": "timestamp_ntz '2024-03-10 02:30:00'",
    "span": "INTERVAL '1 02:03:04.5' DAY TO SECOND * id",
    "variant": """parse_json(concat('{"a": [1, ', id, ', "x"]}'))""",
    "variants": "array(parse_json('1'), NULL)",
    "nothing": "NULL",
    "void": "array()",
    "collated": "cast(id AS STRING) COLLATE UTF8_LCASE",
    "text": "cast(id AS VARCHAR(5))",
    "single": "cast('NaN' AS FLOAT)",
    "tiny": "cast(id AS TINYINT)",
    "none": "struct()",
    "point": "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')",
    "place": "st_geogfromwkb(X'0101000000000000000000F03F0000000000000040')",
    "long_ago": "DATE '1500-01-01'",
    "inner_null": "named_struct('x', cast(NULL AS STRUCT<y: ARRAY<INT>>))",
    "a.b": "id",
    "x y": "id",
    "q``t": "id",
    "größe": "id",
}
PRINTED = {  # types not supported by collect()
    "months": "INTERVAL '1-2' YEAR TO MONTH * id",
    "years": "INTERVAL '-3' YEAR",
    "mixed": "make_interval(id, 2, 3, 4, 5, 6, 7.5)",
}


def test_payload_of_any_type(spark: SparkSession) -> None:
    columns = [f"{sql} AS `{name}`" for name, sql in (PAYLOAD | PRINTED).items()]
    one = spark.range(12).selectExpr("id AS k", *columns)
    other = spark.range(12).selectExpr("id AS n", "id % 3 AS g")
    for condition in ("l.k = r.n", "l.k < r.n"):  # hashed, and distributed by the rows' content
        result = dovetail.join(one, other, condition, sample=False, cells=2)
        expected = spark_join(one, other, condition)
        assert result.columns == expected.columns
        assert [type_ for _, type_ in result.dtypes] == [type_ for _, type_ in expected.dtypes]
        texts = [F.col(name).cast("string").alias(name) for name in PRINTED]
        assert rows_of(result.drop(*PRINTED)) == rows_of(expected.drop(*PRINTED))
        assert rows_of(result.select("k", *texts)) == rows_of(expected.select("k", *texts))


def test_nullability_and_metadata_are_kept(spark: SparkSession) -> None:
    frame = spark.range(3).select(F.col("id").alias("k", metadata={"unit": "m"}), F.lit(None).cast("int").alias("n"))
    fields = dovetail.join(frame, frame, "l.k = r.k", sample=False).schema.fields
    assert [field.nullable for field in fields] == [False, True, False, True]
    assert fields[0].metadata == {"unit": "m"}


@pytest.mark.one_in(4)
def test_user_defined_types(spark: SparkSession) -> None:
    from pyspark.sql.types import IntegerType, StructField, StructType
    from pyspark.testing.objects import ExamplePoint, ExamplePointUDT

    schema = StructType([StructField("k", IntegerType()), StructField("p", ExamplePointUDT())])
    frame = spark.createDataFrame([(1, ExamplePoint(1.0, 2.0)), (2, None)], schema)
    for condition in some(("l.k = r.k", "l.k <= r.k"), 1, of=2):
        ours = dovetail.join(frame, frame, condition, sample=False, cells=2)
        assert rows_of(ours) == rows_of(spark_join(frame, frame, condition))


@pytest.mark.one_in(3)
def test_time_of_day(spark: SparkSession) -> None:
    with setting(spark, "spark.sql.timeType.enabled", "true"):
        one = spark.range(9).selectExpr("id", "cast(concat('12:00:0', id) AS TIME(6)) AS t")
        other = spark.range(9).selectExpr("id AS n", "cast(concat('12:00:0', id) AS TIME(3)) AS t")
        check(one, other, ["l.t = r.t", "l.t < r.t"], sample=False, cells=2)


@pytest.mark.parametrize("sql", ["array(INTERVAL '1' YEAR)", "named_struct('a', 1, 'a', 2)"])
def test_types_that_cannot_travel(spark: SparkSession, sql: str) -> None:
    frame = spark.range(3).selectExpr("id AS k", f"{sql} AS p")
    with pytest.raises(InputError, match=r"column p is of the Spark type .*which Arrow does not support"):
        dovetail.join(frame, frame, "l.k = r.k")


# Columns that Spark compares by its own rules.


@pytest.mark.one_in(3)
def test_collations(spark: SparkSession) -> None:
    one = spark.createDataFrame([("a",), ("B",), ("é",), (None,)], "s STRING COLLATE UTF8_LCASE")
    other = spark.createDataFrame([("A", 1), ("b", 2), ("c", 3)], "s STRING COLLATE UTF8_LCASE, n INT")
    conditions = ["l.s = r.s", "l.s = 'b' AND r.n < 3", "l.s COLLATE UNICODE_CI_AI < r.s COLLATE UNICODE_CI_AI"]
    check(one, other, conditions, sample=False, cells=2)
    assert dovetail.join(one, other, ["s"], sample=False, cells=2).count() == 2


@pytest.mark.one_in(3)
def test_intervals_of_months(spark: SparkSession) -> None:
    one = spark.range(30).selectExpr("id", "make_ym_interval(0, int(id)) AS i", "DATE '2024-01-31' AS d")
    other = spark.range(3).selectExpr("INTERVAL '1' YEAR * id AS j", "DATE '2025-02-28' AS e")
    conditions = ["l.i = r.j", "l.i < r.j", "l.i > make_ym_interval(2, 4)", "l.d + l.i = r.e"]
    printed = ["id", "cast(i AS STRING)", "cast(j AS STRING)"]
    for condition in some(conditions, 1, of=2):
        ours = dovetail.join(one, other, condition, sample=False, cells=2)
        assert rows_of(ours.selectExpr(*printed)) == rows_of(spark_join(one, other, condition).selectExpr(*printed))
    assert dovetail.explain(one, other, "l.i = r.j", sample=False).operator.name == "shj"


@pytest.mark.one_in(3)
def test_char_columns_are_padded_before_they_are_compared(spark: SparkSession) -> None:
    try:
        spark.sql("CREATE TABLE short (c CHAR(4), n INT) USING parquet")
        spark.sql("CREATE TABLE long (c CHAR(7), s STRING) USING parquet")
        spark.sql("INSERT INTO short VALUES ('ab', 1), ('abcd', 2), ('x', 3)")
        spark.sql("INSERT INTO long VALUES ('ab', 'ab'), ('abcd', 'abcd'), ('abcde', 'x   ')")
        short, long = spark.table("short"), spark.table("long")
        conditions = ["l.c = r.c", "l.c = r.s", "l.c < r.c", "l.c = 'ab' AND r.c = 'ab'"]
        check(short, long, some(conditions, 0, of=2), sample=False, cells=2)
        check(short, short, ["l.c = r.c"], sample=False, cells=2)
        assert dovetail.explain(short, short, "l.c = r.c", sample=False).operator.name == "shj"
        assert dovetail.explain(short, long, "l.c = r.c", sample=False).operator.name == "shj"
    finally:
        spark.sql("DROP TABLE IF EXISTS short")
        spark.sql("DROP TABLE IF EXISTS long")


# Names, and errors before any job.


def test_clashing_names(left: DataFrame, right: DataFrame) -> None:
    columns = dovetail.join(left, right, "l.k = r.k", suffix="_2", sample=False).columns
    assert columns == [*LEFT.column_names, *(f"{n}_2" if n in LEFT.column_names else n for n in RIGHT.column_names)]


def test_names_that_differ_in_case(spark: SparkSession) -> None:
    upper, lower = spark.range(3).toDF("K"), spark.range(3).selectExpr("id AS k", "id AS v", "id + 1 AS V")
    result = dovetail.join(upper, lower, "l.k = r.k AND levenshtein(l.k, r.k) < 1", sample=False)
    assert result.columns == ["K", "k_right", "v", "V"]
    assert sorted(tuple(row) for row in result.collect()) == [(0, 0, 0, 1), (1, 1, 1, 2), (2, 2, 2, 3)]


def test_names_that_spark_can_hardly_address(spark: SparkSession) -> None:
    frame = spark.range(6).selectExpr("id AS `a.b`", "id % 2 AS `x y`", "id % 3 AS `q``t`", "-id AS `größe`")
    conditions = [
        "l.`a.b` = r.`q``t`",
        "l.`x y` < r.`größe` + 3",
        "hash(l.`a.b`) = hash(r.`q``t`) AND pmod(hash(l.`x y`), 2) >= 0",
        "levenshtein(l.`a.b`, r.`größe`) < 2",
    ]
    check(frame, frame, some(conditions, 0, of=2), sample=False, cells=2)
    check(frame, frame, ["l.`a.b` = r.`q``t`"])


def test_large_results_are_better_written_by_tasks(spark: SparkSession) -> None:
    frame = spark.range(8000).selectExpr("id AS a", "id * 37 % 8000 AS b")
    on = "l.a < r.a AND l.b > r.b"
    assert "advice     to store a result of this size, dovetail.write" in str(dovetail.explain(frame, frame, on))
    assert "dovetail.write" not in str(dovetail.explain(frame, frame, on, "left_semi"))
    assert "dovetail.write" not in str(dovetail.explain(frame, frame, "l.a < r.a AND l.b > r.b AND l.a + 9 > r.a"))


def test_explain(left: DataFrame, right: DataFrame) -> None:
    plan = str(dovetail.explain(left, right, "soundex(l.name) = r.code AND levenshtein(l.name, r.name) < 2"))
    assert "driven by  l.`soundex(name)` = r.code" in plan
    assert "< 2 can be checked by Spark only, on every joined row" in plan


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"on": "l.k = r.kk"}, ConditionError, "r.kk: no such column; did you mean r.k"),
        ({"on": "l.name = r.k"}, ConditionError, "cannot be compared"),
        ({"on": "l.k = r.k", "cels": 3}, InputError, "has no argument 'cels'. Did you mean 'cells'"),
        ({"on": "l.k = r.k", "cells": 0}, InputError, "cells must be an integer, 1 or more; got 0"),
        ({"on": "l.k = r.k", "suffix": ""}, InputError, "two columns called 'k'"),
        ({"on": "l.k < r.k", "algorithm": "shj"}, PlanError, "needs at least one equality"),
        ({"on": "l.k = r.k", "how": "sideways"}, InputError, "how must be one of"),
    ],
)
def test_refusals(
    left: DataFrame, right: DataFrame, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        dovetail.join(left, right, **arguments)


def test_two_columns_of_one_name(spark: SparkSession, right: DataFrame) -> None:
    twice = spark.range(3).selectExpr("id AS k", "id AS v", "id AS v")
    with pytest.raises(InputError, match="several columns called v"):
        dovetail.join(twice, right, "l.k = r.k")


def test_a_dataframe_and_a_table(left: DataFrame) -> None:
    with pytest.raises(InputError, match="others are not"):
        dovetail.join(left, RIGHT, "l.k = r.k")
