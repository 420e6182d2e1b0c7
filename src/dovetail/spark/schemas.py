"""Spark schemas as Arrow schemas, as mapInArrow will show them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from dovetail.errors import InputError


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The Arrow types of a DataFrame's columns."""
    zone = session_zone(frame)
    return pa.schema([_field(field, zone) for field in frame.schema])


def session_zone(frame: DataFrame) -> str:
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    return zone if zone is not None else "UTC"


def _field(field: StructField, zone: str) -> pa.Field:
    try:
        return pa.field(field.name, to_arrow_type(field.dataType, timezone=zone), field.nullable)
    except PySparkException as error:
        raise InputError(
            f"column {field.name} is of the Spark type {field.dataType.simpleString()}, which cannot pass through "
            "Arrow. Cast it before the join."
        ) from error


def result_schema(left: DataFrame, right: DataFrame, names: list[str]) -> StructType:
    """The Spark schema of the result: the fields of both sides under the names of the output."""
    fields = [*left.schema.fields, *right.schema.fields]
    return StructType(
        [StructField(name, f.dataType, f.nullable, f.metadata) for name, f in zip(names, fields, strict=True)]
    )
