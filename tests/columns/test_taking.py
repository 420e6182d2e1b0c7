"""Rows at given positions, of every type, with and without nulls, from whole and from sliced batches."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from dovetail.columns.taking import FEW_ROWS, Gatherer, gather
from dovetail.core.rows import Matches, Side
from dovetail.execution.output import result_batches

ROWS = 500
RNG = np.random.default_rng(1)
DAY = datetime.date(2024, 2, 28)


def columns() -> dict[str, pa.Array]:
    whole = RNG.integers(0, 100, ROWS)
    decimals = [decimal.Decimal(int(number)) for number in whole]
    words = [f"word {number}" * (int(number) % 3) for number in whole]
    found = {str(type_): pa.array(whole, type_) for type_ in (pa.int8(), pa.uint16(), pa.int32(), pa.uint64())}
    found |= {str(type_): pa.array(whole / 8, type_) for type_ in (pa.float32(), pa.float64())}
    found |= {str(type_): pa.array(decimals, type_) for type_ in (pa.decimal128(20, 2), pa.decimal256(50, 0))}
    found |= {str(type_): pa.array(words, type_) for type_ in (pa.string(), pa.large_string(), pa.large_binary())}
    found |= {f"{size} bytes": pa.array([bytes(range(size))] * ROWS, pa.binary(size)) for size in (1, 3, 16, 24)}
    found |= {
        "halffloat": pa.array(whole.astype(np.float16)),
        "bool": pa.array(whole > 50),
        "date": pa.array([DAY + datetime.timedelta(int(days)) for days in whole]),
        "timestamp": pa.array(whole, pa.timestamp("us", "UTC")),
        "duration": pa.array(whole, pa.duration("s")),
        "dictionary": pa.array(words).dictionary_encode(),
        "list": pa.array([list(range(int(number) % 4)) for number in whole]),
        "struct": pa.array([{"a": int(number), "b": "x"} for number in whole]),
        "interval": pa.array([pa.MonthDayNano([1, 2, 3])] * ROWS),
        "null": pa.nulls(ROWS),
    }
    gone = RNG.random(ROWS) < 0.3
    nulls = {
        f"{name} with nulls": pa.array(
            [None if missing else value for missing, value in zip(gone, column.to_pylist(), strict=True)], column.type
        )
        for name, column in found.items()
        if name != "dictionary"
    }
    codes = pa.array([None if missing else 1 for missing in gone], pa.int32())
    nulls["dictionary with nulls"] = pa.DictionaryArray.from_arrays(codes, found["string"].slice(0, 5))
    return found | nulls


BATCH = pa.record_batch(columns())


@pytest.mark.one_in(6)
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("batch", [BATCH, BATCH.slice(13, 400)], ids=["whole", "sliced"])
@pytest.mark.parametrize("size", [0, 1, FEW_ROWS - 1, FEW_ROWS, FEW_ROWS + 777])
@pytest.mark.parametrize("type_", [np.int32, np.int64])
def test_the_same_as_arrow(batch: pa.RecordBatch, size: int, share: bool, type_: type) -> None:
    for rows in (RNG.integers(0, batch.num_rows, size), np.arange(7, 7 + min(size, 300))):
        taken = gather([(Gatherer(batch, share=share), rows.astype(type_))])
        expected = batch.take(pa.array(rows))
        for name, mine, theirs in zip(batch.schema.names, taken, expected.columns, strict=True):
            mine.validate(full=True)
            assert mine.type == theirs.type, name
            assert mine.null_count == theirs.null_count, name
            assert repr(mine.to_pylist()) == repr(theirs.to_pylist()), name


def test_runs_are_slices_where_that_is_allowed() -> None:
    address = BATCH.column(3).buffers()[1].address
    shared = gather([(Gatherer(BATCH, share=True), np.arange(100, 300))])[3]
    copied = gather([(Gatherer(BATCH), np.arange(100, 300))])[3]
    assert shared.buffers()[1].address == address
    assert copied.buffers()[1].address != address


def test_strings_too_long_for_one_batch_come_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.record_batch({"s": ["x" * 100, "y" * 50]})
    rows = np.zeros(400, np.int32)
    monkeypatch.setattr("dovetail.kernels.taking.MOST_BYTES", {4: 10_000, 8: 2**63 - 1})
    monkeypatch.setattr("dovetail.columns.taking.FEW_ROWS", 100)
    batches = list(result_batches(Matches.single(Side.LEFT, batch, rows), batch.schema))
    assert [b.num_rows for b in batches] == [100, 100, 100, 100]
    assert pa.Table.from_batches(batches).column("s").to_pylist() == ["x" * 100] * 400
