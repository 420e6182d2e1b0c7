"""The types of columns in directory names, such as `day=2026-01-31/`: numbers and dates, as for Spark and DuckDB.

Arrow itself knows numbers of 32 bits and text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import date

import pyarrow as pa
import pyarrow.dataset as ds

LONG = re.compile(r"-?\d{1,18}")
DOUBLE = re.compile(r"-?\d{1,18}(\.\d+)?")
DATE = re.compile(r"\d{4}-\d\d-\d\d")


def partition_types(dataset: ds.FileSystemDataset) -> pa.Schema | None:
    """The columns in directory names, with their types by all values. None if they are as Arrow reads them."""
    known = dataset.partitioning.schema if dataset.partitioning is not None else pa.schema([])
    if not any(map(pa.types.is_string, known.types)):
        return None
    keys = [ds.get_partition_keys(fragment.partition_expression) for fragment in dataset.get_fragments()]
    found = pa.schema([_typed(field, {key.get(field.name) for key in keys} - {None}) for field in known])
    return None if found == known else found


def _typed(field: pa.Field, values: Collection[str]) -> pa.Field:
    if not pa.types.is_string(field.type) or not values:
        return field
    if all(map(LONG.fullmatch, values)):
        return field.with_type(pa.int64())
    if all(map(DOUBLE.fullmatch, values)):
        return field.with_type(pa.float64())
    if all(map(_is_date, values)):
        return field.with_type(pa.date32())
    return field


def _is_date(text: str) -> bool:
    try:
        return DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False
