"""Rows without gaps, compared with a list of rows."""

from __future__ import annotations

import datetime
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.seed import seeded

from dovetail.storage.packed_rows import PackedRows

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [-(2**63), 0, 7]),
    "f": (pa.float32(), [0.5, float("inf")]),
    "s": (pa.string(), ["", "x", "a longer text, so long that it is copied in one go, as a whole"]),
    "b": (pa.large_binary(), [b"", b"\x00\xff"]),
    "t": (pa.bool_(), [True, False]),
    "d": (pa.date32(), [datetime.date(2020, 1, 1), datetime.date(1970, 1, 1)]),
    "l": (pa.list_(pa.int32()), [[], [1, 2], [3]]),
    "n": (pa.int16(), [None, 3, -4]),
    "m": (pa.string(), [None, "", "yes"]),
    "e": (pa.dictionary(pa.int8(), pa.string()), ["red", "green"]),
}
SCHEMA = pa.schema([(name, type_) for name, (type_, _) in COLUMNS.items()])


def some_rows(rng: random.Random, rows: int) -> pa.RecordBatch:
    arrays = [pa.array(rng.choices(values, k=rows), type_) for type_, values in COLUMNS.values()]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("part_bytes", [1, 300, 5_000, 2**31 - 1])
def test_rows_come_and_go(part_bytes: int) -> None:
    rng = seeded(part_bytes)
    packed = PackedRows(SCHEMA, part_bytes)
    expected: list[dict[str, Any]] = []
    for _ in range(40):
        batch = some_rows(rng, rng.choice([0, 1, 5, 40])).slice(rng.choice([0, 2]))
        packed.append(batch)
        expected += batch.to_pylist()
        gone = np.array([rng.random() < 0.2 for _ in expected], np.bool_)
        if rng.random() < 0.1:
            gone[:] = True
        if rng.random() < 0.6:
            packed.remove(gone)
            expected = [row for row, left in zip(expected, gone.tolist(), strict=True) if not left]
        assert len(packed) == len(expected)
        assert [row for part in packed.parts for row in part.to_pylist()] == expected
        assert packed.nbytes >= sum(part.nbytes for part in packed.parts) * 0.9
        positions = np.array(rng.choices(range(len(expected)), k=15) if expected else [], np.int64)
        assert packed.take(positions).to_pylist() == [expected[i] for i in positions.tolist()]
        assert packed.take(positions, ["m", "i"]).to_pylist() == [
            {name: expected[i][name] for name in ("m", "i")} for i in positions.tolist()
        ]
        for places in (packed.located(positions), packed.gathered(positions)):
            found: dict[int, dict[str, Any]] = {}
            for chosen, rows, numbers in places:
                found.update(zip(np.arange(15)[chosen].tolist(), rows.take(pa.array(numbers)).to_pylist(), strict=True))
            assert [found[i] for i in range(len(positions))] == [expected[i] for i in positions.tolist()]


def test_parts_are_bounded_and_few() -> None:
    rng = random.Random(0)
    packed = PackedRows(SCHEMA, 20_000)
    for _ in range(30):
        packed.append(some_rows(rng, 300))
        packed.remove(np.array([rng.random() < 0.3 for _ in range(len(packed))], np.bool_))
    sizes = [part.nbytes for part in packed.parts]
    assert max(sizes) <= 22_000
    assert len(sizes) <= 2 * packed.nbytes / 20_000 + 2


def test_rows_of_which_no_column_is_wanted() -> None:
    packed = PackedRows(SCHEMA, 300)
    packed.append(some_rows(seeded(0), 30))
    assert packed.take(np.array([0, 3, 3]), []).num_rows == 3


def test_appended_rows_do_not_change_what_was_taken() -> None:
    packed = PackedRows(pa.schema([("k", pa.int64())]), 10_000)
    packed.append(pa.record_batch({"k": pa.array(range(10), pa.int64())}))
    (before,) = packed.parts
    packed.remove(np.arange(10) < 5)
    packed.append(pa.record_batch({"k": pa.array(range(100, 200), pa.int64())}))
    assert before["k"].to_pylist() == list(range(10))
