"""Every function in conditions has the same result in workers and in Spark, so either can evaluate it."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dovetail.condition import Call, Column, Expression, Literal, bind, evaluate, spark_sql
from dovetail.condition.functions import TABLE, TRUNCATIONS, Function, Kind
from dovetail.core.rows import Side
from dovetail.spark.frames.schemas import arrow_schema, session_zone

pytestmark = pytest.mark.spark

TEXTS = ["", " a b ", "Straße", "ΑΣ ΣΑΣ", "İstanbul", "ŉ", "ﬁ", "ǆ", "𐐨x", "\t z\u00a0", "e\u0301", None]
NUMBERS = [0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 0.1, 1e300, 1e-300, 2.0**53, float("nan"), float("inf"), -float("inf"), None]
INTEGERS = [0, 1, -1, 2**31, -(2**40), 7, None]
DECIMALS = ["0.05", "-0.05", "1.25", "99999999.99", "-1.50", None]
TIMES = ["1900-01-01 00:00:00", "2024-02-29 23:59:59.999999", "2024-03-31 02:30:00", "2024-10-27 00:30:00", None]

COLUMNS: dict[Kind, list[str]] = {
    Kind.TEXT: ["s"],
    Kind.TEXT_OR_BYTES: ["s", "b"],
    Kind.NUMBER: ["x", "n", "m"],
    Kind.DOUBLE: ["x", "n"],
    Kind.AMOUNT: ["x", "n", "m"],
    Kind.INSTANT: ["d", "t"],
    Kind.TIMESTAMP: ["d", "t"],
    Kind.DATE: ["d", "t"],
    Kind.COMMON: ["x", "n", "m", "s", "d", "t"],
}
CONSTANTS: dict[Kind, list[Any]] = {Kind.CONSTANT: [-3, -1, 0, 1, 2, 5], Kind.UNIT: list(TRUNCATIONS)}


@pytest.fixture(scope="module")
def without_ansi(spark: SparkSession) -> SparkSession:
    """Switch off ANSI mode, in which Spark fails if a value is too large for its type."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "false")
    return session


CLOSE = {"pow"}  # the last digit depends on the library
NULL = Literal(None, pa.null())
IS_EVEN = Call("=", (Call("%", (Column(Side.LEFT, "i"), Literal(2))), Literal(0)))


def table() -> pa.Table:
    """All values of each type, combined with varying values of the others."""
    columns: dict[str, tuple[list[Any], pa.DataType]] = {
        "s": (TEXTS, pa.string()),
        "b": ([b"", b"\xc3\x9f", b"\xff", None], pa.binary()),
        "x": (NUMBERS, pa.float64()),
        "n": (INTEGERS, pa.int64()),
        "m": ([None if v is None else Decimal(v) for v in DECIMALS], pa.decimal128(10, 2)),
        "d": ([dt.date(1582, 10, 15), dt.date(2024, 2, 29), dt.date(1969, 12, 31), None], pa.date32()),
        "t": (
            [None if v is None else dt.datetime.fromisoformat(v + "+00:00") for v in TIMES],
            pa.timestamp("us", "UTC"),
        ),
    }
    rows = 60
    taken = {
        name: pa.array(list(itertools.islice(itertools.cycle(values), rows)), type_)
        for name, (values, type_) in columns.items()
    }
    return pa.table({"i": pa.array(range(rows), pa.int64()), **taken})


def calls(function: Function) -> list[Expression]:
    """Calls of the function with columns and constants of the allowed kinds."""
    count = max(2, len(function.takes)) if function.repeats else len(function.takes)
    kinds = function.kinds(count)
    choices: list[list[Expression]] = [
        [Literal(v) for v in CONSTANTS[kind]]
        if kind in CONSTANTS
        else [Column(Side.LEFT, name) for name in COLUMNS[kind]]
        for kind in kinds
    ]
    if Kind.COMMON in kinds:
        return [Call(function.name, (Call("case", (IS_EVEN, one, NULL)), one)) for one in choices[0]]
    return [Call(function.name, args) for args in itertools.product(*choices)]


@pytest.mark.parametrize("function", TABLE, ids=lambda function: function.name)
def test_as_spark(without_ansi: SparkSession, function: Function) -> None:
    given = table()
    frame = without_ansi.createDataFrame(given)
    schema = arrow_schema(frame)
    zone = session_zone(frame)
    bound = [bind(call, schema, pa.schema([]), zone) for call in calls(function)]
    batch = given.cast(schema).combine_chunks().to_batches()[0]
    texts = [spark_sql(one, lambda column: f"`{column.name}`") for one in bound]
    theirs = frame.selectExpr(*(f"{text} AS c{place}" for place, text in enumerate(texts))).toArrow()
    for place, one in enumerate(bound):
        ours = evaluate(one, batch, None)
        digits = 14 if function.name in CLOSE else 17
        assert values(ours, digits) == values(theirs.column(place).cast(ours.type), digits), texts[place]


def values(array: pa.Array | pa.ChunkedArray, digits: int) -> list[Any]:
    """Comparable values: NaN equals itself, and 0.0 equals -0.0."""
    return [f"{v + 0.0:.{digits}g}" if isinstance(v, float) else v for v in array.to_pylist()]
