"""Partial results per left row and per group, against the definition; merging them gives the result of the whole."""

import random

import numpy as np
import pyarrow as pa
import pytest
from tests.seed import generator, seeded

from dovetail.aggregates import finish, partial_aggregates, partial_columns, partial_schema, result_schema
from dovetail.aggregates.partial import over_partners, rank
from dovetail.columns.batches import one_batch
from dovetail.condition import parse
from dovetail.condition.select import Aggregate, parse_aggregates, parse_by
from dovetail.matching import build_matcher
from dovetail.matching import matcher as build
from dovetail.matching.kernel_pairs import NONE
from dovetail.matching.matcher import Parts
from dovetail.testing import COLUMNS, CONDITIONS, definition, random_table

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
MORE = (
    "TRUE",
    "l.k = r.k AND abs(l.x - r.x) <= 1",
    "l.k = r.k AND l.x < r.x AND l.n >= r.n",
    "l.k < r.k AND l.x > r.x AND l.n <= r.n",
    "l.k != r.k AND l.s = r.s",
    "l.n BETWEEN r.n - 1 AND r.n + 2.5",
    "(l.k, l.n) OVERLAPS (r.k, r.n)",
    "distance(l.k, l.x, r.k, r.x) < 1.5",
)
FLOATS = np.array([0.0, -1.5, 2.25, np.inf, -np.inf, np.nan])


def merged(partials: pa.Table, aggregates: tuple[Aggregate, ...], groups: int) -> pa.RecordBatch:
    """Merge partial results as Spark does."""
    names = partials.column_names
    wanted = [(name, column.merge) for name, column in zip(names[groups:], partial_columns(aggregates), strict=True)]
    table = partials.group_by(names[:groups]).aggregate(wanted)
    columns = [table.column(i) for i in range(groups)] + [table.column(f"{name}_{merge}") for name, merge in wanted]
    return one_batch(pa.table(columns, names), partials.schema).cast(partials.schema)


@pytest.mark.parametrize("on", ["l.k < r.k", "l.k = r.k", "TRUE", "l.k = r.k OR l.s = r.s"])
@pytest.mark.parametrize("by", [None, ["l.s"], ["r.d", "r.b"]])
def test_cells_add_up(on: str, by: list[str] | None) -> None:
    rng = seeded(f"{on}{by}")
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


@pytest.mark.one_in(2)
@pytest.mark.parametrize("on", [*CONDITIONS, *MORE])
@pytest.mark.parametrize("large_group", [1, 1 << 14])
def test_equals_the_definition(on: str, large_group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "LARGE_GROUP", large_group)
    rng = seeded(f"{on}{large_group}")
    for _ in range(8):
        left, right = random_table(rng), random_table(rng)
        numbers = generator(rng.randrange(99))
        whole = numbers.integers(-(2**40), 2**40, right.num_rows)
        floats = numbers.choice(FLOATS, right.num_rows)
        codes = np.where(numbers.random(right.num_rows) < 0.2, NONE, whole)
        matcher = build_matcher(parse(on, left.schema, right.schema), *map(_batch, (left, right)))
        assert isinstance(matcher, Parts)
        found = over_partners(matcher, [whole, floats], [codes])
        partners: list[list[int]] = [[] for _ in range(left.num_rows)]
        for left_row, right_row in definition(left, right, on):
            partners[left_row].append(right_row)
        assert found.counts.tolist() == [len(rows) for rows in partners]
        assert found.sums[0].tolist() == [whole[rows].sum() for rows in partners]
        with np.errstate(invalid="ignore"):
            assert np.array_equal(found.sums[1], [floats[rows].sum() for rows in partners], equal_nan=True)
        assert found.smallest[0].tolist() == [codes[rows].min(initial=NONE) for rows in partners]


def test_chunks_of_checked_pairs_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.aggregates.partial.CHUNK", 3)
    table = pa.table({"k": [1, 2, 3, 4, 5]})
    matcher = build_matcher(parse("l.k + r.k > 4", table.schema, table.schema), *map(_batch, (table, table)))
    assert isinstance(matcher, Parts)
    found = over_partners(matcher, [np.array([1, 10, 100, 1000, 10000])], [np.array([5, 4, 3, 2, 1])])
    assert found.counts.tolist() == [2, 3, 4, 5, 5]
    assert found.sums[0].tolist() == [11000, 11100, 11110, 11111, 11111]
    assert found.smallest[0].tolist() == [1, 1, 1, 1, 1]


def _batch(table: pa.Table) -> pa.RecordBatch:
    return one_batch(table, table.schema)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("largest_first", [False, True])
def test_ranks_have_the_order_of_the_values(name: str, largest_first: bool) -> None:
    values = random_table(seeded(name), 60).column(name).combine_chunks()
    order = rank(values, largest_first)
    assert (order.ranks == NONE).tolist() == values.is_null().to_pylist()
    if name != "x":  # 0.0 and -0.0 are one value
        assert order.values_at(order.ranks).equals(values)
    some = [value for value in values.to_pylist() if value is not None and value == value]
    best = order.values_at(np.array([order.ranks.min()]))[0].as_py()
    if largest_first and any(value != value for value in values.to_pylist()):
        assert best != best  # NaN is the largest
    else:
        assert best == (max(some) if largest_first else min(some))


def test_bytes_are_compared_one_by_one() -> None:
    values = pa.array([b"b", b"\xff", b"", b"a\x00"])
    assert rank(values, False).values_at(np.arange(4)).to_pylist() == [b"", b"a\x00", b"b", b"\xff"]


def test_nothing() -> None:
    order = rank(pa.array([], pa.string()), False)
    assert order.values_at(np.full(2, NONE)).to_pylist() == [None, None]
