"""Dictionary-encoded columns in progressive joins within a small budget, against the join at rest."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import dovetail

ROWS = 6000
NAMES = pa.array([*(f"customer number {i:06d} of many" for i in range(2000)), None])


def customers(seed: int) -> pa.Table:
    """Keys as numbers and as dictionary-encoded strings. The dictionary is larger than the budget."""
    rng = np.random.default_rng(seed)
    number = rng.integers(0, len(NAMES), ROWS)
    names = pa.DictionaryArray.from_arrays(pa.array(number, pa.int32()), NAMES)
    return pa.table({"k": number, "name": names, "x": rng.random(ROWS)})


def rows_of(batches: list[pa.RecordBatch], schema: pa.Schema) -> Counter[str]:
    return Counter(map(repr, pa.Table.from_batches(batches, schema).to_pylist()))


@pytest.mark.one_in(6)
@pytest.mark.parametrize("algorithm", ["auto", "diner", "xjoin", "pmj"])
@pytest.mark.parametrize("on", ["l.k = r.k", "l.name = r.name", "l.name = r.name AND l.x < r.x"])
def test_a_dictionary_counts_once_however_many_pieces_there_are(on: str, algorithm: str) -> None:
    left, right = customers(0), customers(1)
    expected = dovetail.join(left, right, on)
    steps = list(dovetail.progressive(left, right, on, algorithm=algorithm, memory="150KB"))
    assert all(step.batch.schema == expected.schema for step in steps)
    assert rows_of([step.batch for step in steps], expected.schema) == rows_of(expected.to_batches(), expected.schema)
    assert steps[-1].results == expected.num_rows


def test_readers_and_other_join_types() -> None:
    left, right = customers(2), customers(3)
    on = "l.name = r.name AND l.x < r.x"
    expected = dovetail.join(left, right, on, "left")
    steps = dovetail.progressive(left.to_reader(), right.to_reader(), on, "left", memory="2MB")
    found = rows_of([step.batch for step in steps], expected.schema)
    assert found == rows_of(expected.to_batches(), expected.schema)


def test_short_indices_number_the_values_of_a_batch() -> None:
    """Two chunked dictionaries of 100 strings each; together they exceed the range of an 8-bit index."""
    pieces = []
    for start in (0, 100):
        names = pa.DictionaryArray.from_arrays(pa.array(np.arange(100), pa.int8()), NAMES.slice(start, 100))
        pieces.append(pa.RecordBatch.from_arrays([pa.array(np.arange(start, start + 100)), names], ["k", "name"]))
    left = pa.RecordBatchReader.from_batches(pieces[0].schema, pieces)
    right = pa.table({"k": np.arange(200)})
    steps = list(dovetail.progressive(left, right, ["k"], memory="1MB"))
    found = [(row["k"], row["name"]) for step in steps for row in step.batch.to_pylist()]
    assert sorted(found) == list(enumerate(NAMES.slice(0, 200).to_pylist()))
    assert all(step.batch.schema.field("name").type == pa.dictionary(pa.int8(), pa.string()) for step in steps)


def test_aggregates() -> None:
    left, right = customers(4), customers(5)
    steps = list(dovetail.progressive(left, right, ["k"], memory="150KB", aggregate={"x": "sum(l.x)"}))
    truth = sum(dovetail.join(left, right, ["k"])["x"].to_pylist())
    aggregates = steps[-1].aggregates
    assert aggregates is not None
    assert aggregates["x"] is not None
    assert aggregates["x"].total == pytest.approx(truth)


@pytest.mark.parametrize("values", [pa.array([{"a": 1}, {"a": 2}]), pa.array([[1], [2, 3]]), pa.array([True, False])])
@pytest.mark.parametrize("memory", ["2MB", None])
def test_dictionaries_of_any_type(values: pa.Array, memory: str | None) -> None:
    """Arrow cannot encode structs and lists, so they are passed on unchanged, next to a column that is decoded."""
    indices = pa.array([0, 1, None, 1] * 20, pa.int8())
    odd = pa.DictionaryArray.from_arrays(indices, values)
    names = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]))
    left = pa.table({"k": np.arange(80), "odd": odd, "name": names})
    expected = dovetail.join(left, left.select(["k"]), ["k"])
    steps = dovetail.progressive(left, left.select(["k"]), ["k"], memory=memory)
    found = rows_of([step.batch for step in steps], expected.schema)
    assert found == rows_of(expected.to_batches(), expected.schema)
