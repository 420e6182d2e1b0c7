"""Backports of newer PySpark features behave like newer PySpark."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dovetail.spark.versions import _in_zone, arrow_type

AT = TimestampType()
ROW = StructType([StructField("at", AT, nullable=False), StructField("local", TimestampNTZType())])
TYPES = [AT, ArrayType(ArrayType(AT, containsNull=False)), MapType(AT, ROW), ArrayType(ROW)]


@pytest.mark.parametrize("type_", TYPES, ids=lambda type_: type_.simpleString())
def test_a_time_zone_of_arrow_types(type_: DataType) -> None:
    expected = arrow_type(type_, "Europe/Berlin")
    assert "tz=Europe/Berlin" in str(expected)
    assert _in_zone(arrow_type(type_, "UTC"), "Europe/Berlin") == expected


def test_what_has_no_time_zone_stays() -> None:
    for type_ in (TimestampNTZType(), IntegerType()):
        assert arrow_type(type_, "Europe/Berlin") == arrow_type(type_, "UTC")
