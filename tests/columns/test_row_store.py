import random
from datetime import datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from tests.seed import seeded

from dovetail.columns.row_store import RowStore

TYPES = [
    pa.int8(),
    pa.uint64(),
    pa.float32(),
    pa.bool_(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.binary(3),
    pa.date32(),
    pa.timestamp("us", "Europe/Berlin"),
    pa.duration("us"),
    pa.decimal128(38, 3),
    pa.list_(pa.string()),
    pa.large_list(pa.int16()),
    pa.list_(pa.int32(), 2),
    pa.map_(pa.string(), pa.list_(pa.bool_())),
    pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string()), ("d", pa.bool_())]))]),
    pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.decimal128(9, 2)))])),
    pa.null(),
    pa.dictionary(pa.int32(), pa.string()),
]


def value(rng: random.Random, type_: pa.DataType, depth: int = 0) -> object:
    """A random Python value of an Arrow type; null one time in five."""
    t = pa.types
    if t.is_null(type_) or rng.random() < 0.2:
        return None
    if t.is_dictionary(type_):
        return rng.choice(["x", "yy", ""])
    if t.is_boolean(type_):
        return rng.random() < 0.5
    if t.is_integer(type_):
        return rng.randrange(0, 100)
    if t.is_floating(type_):
        return float(rng.randrange(100))
    if t.is_decimal(type_):
        return Decimal(rng.randrange(-500, 500)) / 100
    if t.is_fixed_size_binary(type_):
        return bytes(rng.randrange(256) for _ in range(type_.byte_width))
    if t.is_binary(type_):
        return bytes(rng.randrange(256) for _ in range(rng.randrange(5)))
    if t.is_string(type_) or t.is_large_string(type_):
        return "aé0"[: rng.randrange(4)] * rng.randrange(3)
    if t.is_date(type_) or t.is_timestamp(type_):
        moment = datetime(2024, 1, 1) + timedelta(hours=rng.randrange(9999))
        return moment.date() if t.is_date(type_) else moment
    if t.is_duration(type_):
        return timedelta(seconds=rng.randrange(-99, 99))
    if t.is_struct(type_):
        return {f.name: value(rng, f.type) for f in type_}
    if t.is_map(type_):
        keys = {key for key in (value(rng, type_.key_type) for _ in range(rng.randrange(3))) if key is not None}
        return [(key, value(rng, type_.item_type)) for key in keys]
    size = type_.list_size if t.is_fixed_size_list(type_) else rng.randrange(4)
    return [value(rng, type_.value_type) for _ in range(size)]


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_appended_batches_read_as_one(type_: pa.DataType, seed: int) -> None:
    rng = seeded(seed)
    schema = pa.schema([("c", type_), ("n", pa.int64())])
    store = RowStore(schema)
    expected: list[dict[str, object]] = []
    views = []
    for _ in range(8):
        rows = [{"c": value(rng, type_), "n": len(expected)} for _ in range(rng.choice([0, 1, 3, 9, 17]))]
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        cut = rng.randrange(batch.num_rows + 1)  # a slice that does not start at the beginning of its buffers
        first = store.append(batch.slice(cut))
        assert first == len(expected)
        expected += batch.slice(cut).to_pylist()
        views.append((store.view(), list(expected)))
    for view, seen in views:
        view.validate(full=True)
        assert view.to_pylist() == seen
    assert len(store) == len(expected)
    some = np.array([i for i in range(len(expected)) if rng.random() < 0.5], np.int64)
    assert store.take(some).to_pylist() == [expected[i] for i in some]


def test_a_store_knows_when_it_is_full() -> None:
    batch = pa.record_batch({"s": ["x" * 100]})
    store = RowStore(batch.schema, most_bytes=250)
    store.append(batch)
    assert store.fits(batch)
    store.append(batch)
    assert not store.fits(batch)
