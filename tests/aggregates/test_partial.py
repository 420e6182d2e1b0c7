"""Partial results of cells, merged by sum, min and max per group, finish as the result of the whole."""

import random

import pyarrow as pa
import pytest

from dovetail.aggregates import finish, partial_aggregates, partial_columns, partial_schema, result_schema
from dovetail.condition import parse
from dovetail.condition.select import Aggregate, parse_aggregates, parse_by
from dovetail.core.rows import one_batch
from dovetail.testing import random_table

AGGREGATES = {
    "pairs": "count(*)",
    "c": "count(r.x)",
    "k": "sum(l.k)",
    "n": "avg(r.n)",
    "w": "sum(r.w)",
    "a": "avg(r.k)",
    "low": "min(r.s)",
    "high": "max(l.t)",
    "again": "sum(r.n)",
}


def merged(partials: pa.Table, aggregates: tuple[Aggregate, ...], groups: int) -> pa.RecordBatch:
    """What Spark does between the cells and the end."""
    names = partials.column_names
    wanted = [(name, column.merge) for name, column in zip(names[groups:], partial_columns(aggregates), strict=True)]
    table = partials.group_by(names[:groups]).aggregate(wanted)
    columns = [table.column(i) for i in range(groups)] + [table.column(f"{name}_{merge}") for name, merge in wanted]
    return one_batch(pa.table(columns, names), partials.schema).cast(partials.schema)


@pytest.mark.parametrize("on", ["l.k < r.k", "l.k = r.k", "TRUE", "l.k = r.k OR l.s = r.s"])
@pytest.mark.parametrize("by", [None, ["l.s"], ["r.d", "r.b"]])
def test_cells_add_up(on: str, by: list[str] | None) -> None:
    rng = random.Random(f"{on}{by}")
    left, right = random_table(rng, 30), random_table(rng, 30)
    condition = parse(on, left.schema, right.schema)
    aggregates = parse_aggregates(AGGREGATES, left.schema, right.schema)
    groups = parse_by(by, left.schema, right.schema)
    cells = [
        partial_aggregates(condition, aggregates, groups, _part(left, i), _part(right, j))
        for i in range(3)
        for j in range(3)
    ]
    schema = partial_schema(aggregates, groups)
    assert all(cell.schema == schema for cell in cells)
    found = finish(aggregates, groups, merged(pa.Table.from_batches(cells), aggregates, len(groups)))
    whole = partial_aggregates(
        condition, aggregates, groups, one_batch(left, left.schema), one_batch(right, right.schema)
    )
    expected = finish(aggregates, groups, whole)
    assert found.schema == expected.schema == result_schema(aggregates, groups)
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))


def _part(table: pa.Table, number: int) -> pa.RecordBatch:
    return one_batch(table.slice(number * 10, 10), table.schema)


def test_a_column_that_two_aggregates_need_is_there_once() -> None:
    schema = random_table(random.Random(0), 0).schema
    columns = partial_columns(parse_aggregates(AGGREGATES, schema, schema))
    assert [(column.function, str(column.type)) for column in columns] == [
        ("count", "int64"),
        ("count", "int64"),
        ("sum", "decimal128(38, 0)"),
        ("sum", "decimal128(38, 2)"),
        ("count", "int64"),
        ("sum", "decimal128(38, 4)"),
        ("sum", "decimal128(38, 0)"),
        ("count", "int64"),
        ("min", "string"),
        ("max", "timestamp[us, tz=UTC]"),
    ]
