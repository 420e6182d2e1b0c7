"""Rows of several batches gathered into one: columns of every type, with nulls, with a dictionary per batch."""

import numpy as np
import pyarrow as pa
import pytest
from tests.seed import generator

from dovetail.columns.batches import concatenate, no_matches, one_batch, row_bytes
from dovetail.columns.scattering import Place, Source, scatter
from dovetail.columns.taking import FEW_ROWS, take_rows

TYPES = {
    "number": pa.int16(),
    "double": pa.float64(),
    "flag": pa.bool_(),
    "moment": pa.timestamp("us", "UTC"),
    "decimal": pa.decimal128(20, 2),
    "text": pa.string(),
    "long text": pa.large_string(),
    "list": pa.list_(pa.int32()),
    "id": pa.uuid(),
    "nested": pa.struct([("kind", pa.dictionary(pa.int8(), pa.string()))]),
    "kind": pa.dictionary(pa.int8(), pa.string()),
}


def values(name: str, numbers: list[int], batch: int) -> list[object]:
    match name:
        case "flag":
            return [number % 2 == 0 for number in numbers]
        case "text" | "long text":
            return ["x" * (number % 5) for number in numbers]
        case "kind":
            return [f"kind {batch}{number % 3}" for number in numbers]
        case "nested":
            return [{"kind": f"kind {batch}{number % 3}"} for number in numbers]
        case "list":
            return [[number] * (number % 3) for number in numbers]
        case "id":
            return [bytes([number % 200] * 16) for number in numbers]
        case _:
            return list(numbers)


def some_batch(batch: int, rows: int, nulls: bool, draw: np.random.Generator) -> pa.RecordBatch:
    columns = []
    for name, type_ in TYPES.items():
        numbers = draw.integers(0, 1000, rows + 2).tolist()
        gone = draw.random(rows + 2) < 0.2
        whole = [None if nulls and no else value for no, value in zip(gone, values(name, numbers, batch), strict=True)]
        columns.append(pa.array(whole, type_))
    return pa.RecordBatch.from_arrays(columns, list(TYPES)).slice(1, rows)


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("size", [10, FEW_ROWS + 10])
def test_the_same_as_rows_of_one_batch(nulls: bool, size: int) -> None:
    draw = generator(nulls, size)
    batches = [some_batch(number, rows, nulls, draw) for number, rows in enumerate((30, 1, 500))]
    owner = draw.integers(0, len(batches), size)
    rows = np.array([draw.integers(0, batches[number].num_rows) for number in owner])
    places = [
        Place(chosen, Source(batch), rows[chosen])
        for number, batch in enumerate(batches)
        for chosen in [np.flatnonzero(owner == number)]
    ]
    found = scatter(places, range(len(TYPES)), batches[0].schema, size)
    found.validate(full=True)
    firsts = np.cumsum([0] + [batch.num_rows for batch in batches])
    expected = [row for batch in batches for row in batch.to_pylist()]
    assert found.schema == batches[0].schema
    assert found.to_pylist() == [expected[place] for place in (firsts[owner] + rows).tolist()]
    assert take_rows(concatenate(batches), firsts[owner] + rows).to_pylist() == found.to_pylist()
    names = ["kind", "number"]
    some = scatter(places, [10, 0], pa.schema([found.schema.field(name) for name in names]), size)
    assert some.to_pylist() == found.select(names).to_pylist()


def test_batches_without_rows_or_columns() -> None:
    batch = some_batch(0, 3, True, generator())
    assert concatenate([batch]) is batch
    assert one_batch([], batch.schema).schema == batch.schema
    assert take_rows(batch, np.empty(0, np.int64)).equals(one_batch([], batch.schema))
    assert take_rows(batch.select([]), np.array([1, 1])).num_rows == 2
    assert row_bytes(one_batch([], batch.schema)) == 1
    assert no_matches((batch.schema, batch.schema)).size == 0
