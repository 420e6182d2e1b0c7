"""Dictionary-encoded keys against the same keys as plain strings."""

import random

import pyarrow as pa
import pytest
from tests.seed import seeded

import dovetail
from dovetail.condition import parse
from dovetail.matching.preparation import by_code

TEXTS = ["", "a", "b", "ä", "a\0", None]


def encoded(rng: random.Random, index: pa.DataType, value: pa.DataType) -> pa.Table:
    """Strings may occur twice in a dictionary; indices may be null, and with a single chunk also strings."""
    pieces = []
    number = rng.randint(1, 2)
    for _ in range(number):
        values = [rng.choice(TEXTS if number == 1 else TEXTS[:-1]) for _ in range(rng.randint(1, 9))]
        indices = [rng.choice([None, *range(len(values))]) for _ in range(rng.randint(0, 30))]
        column = pa.DictionaryArray.from_arrays(pa.array(indices, index), pa.array(values, value))
        pieces.append(pa.table({"k": column, "n": pa.array([rng.randint(0, 9) for _ in indices], pa.int64())}))
    return pa.concat_tables(pieces)


@pytest.mark.parametrize("how", ["inner", "left", "full", "left_semi", "left_anti"])
@pytest.mark.parametrize("on", ["l.k = r.k", "l.k = r.k AND l.n < r.n", "l.k = r.k AND l.n = r.n", "l.k = upper(r.k)"])
def test_dictionary_keys_are_compared_as_text(on: str, how: str) -> None:
    rng = seeded(f"{on}{how}")
    types = [(pa.int8(), pa.string()), (pa.int32(), pa.large_string()), (pa.uint16(), pa.string())]
    for _ in range(10):
        left, right = encoded(rng, *rng.choice(types)), encoded(rng, *rng.choice(types))
        plain = [table.set_column(0, "k", table["k"].cast(pa.string())) for table in (left, right)]
        found = dovetail.join(left, right, on, how).to_pylist()
        expected = dovetail.join(*plain, on, how).to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_codes_replace_texts_where_both_sides_are_encoded() -> None:
    table = pa.table({"k": pa.array(["a", "b"]).dictionary_encode(), "s": ["a", "b"]})
    (batch,) = table.to_batches()
    condition = parse("l.k = r.k AND l.k = r.s", table.schema, table.schema)
    batches, pairs = by_code((batch, batch), condition.strategy.equal_keys)
    assert [left.type for left, _ in pairs] == [pa.int64(), pa.string()]
    assert batches[0].num_columns == 3


def test_columns_may_have_any_name() -> None:
    texts = pa.array(["a", "b", "a"]).dictionary_encode()
    table = pa.table({"__code 0": texts, "__code": [1, 2, 3]})
    assert dovetail.join(table, table, ["__code 0"]).num_rows == 5
    assert dovetail.join(table, table, ["__code 0", "__code"]).num_rows == 3
