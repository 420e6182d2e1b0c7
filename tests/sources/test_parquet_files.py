"""Parquet files as sources: every row once, in order, from any position."""

from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import dovetail
from dovetail.errors import InputError, SourceError
from dovetail.sources.parquet_files import ParquetSource, parquet_source
from dovetail.sources.protocol import TableScan, read_some

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
TABLE = pa.table({"k": np.arange(1000), "s": [f"s{k}" for k in range(1000)]})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for part in range(3):
        rows = TABLE.slice(part * 400, 400)
        pq.write_table(rows, tmp_path / f"part-{part}.parquet", row_group_size=77)
    return tmp_path


def source(path: Path, columns: list[str] | None = None) -> ParquetSource:
    found = parquet_source(path, columns)
    assert found is not None
    return found


@pytest.mark.parametrize("start", [0, 1, 76, 77, 399, 400, 777, 999, 1000, 5000])
@pytest.mark.parametrize("columns", [None, ["k"]])
def test_rows_come_in_order_from_any_position(directory: Path, start: int, columns: list[str] | None) -> None:
    expected = start
    for position, batch in source(directory).places(50, columns, start):
        assert position == expected
        assert batch.column("k").to_pylist() == list(range(position, position + batch.num_rows))
        assert batch.schema.names == (columns or ["k", "s"])
        expected += batch.num_rows
    assert expected == max(start, 1000)


def test_it_is_a_source_that_goes_on_where_it_was(directory: Path) -> None:
    files = source(directory)
    piece = next(files.open())
    rest = [batch for batch, _ in files.open(piece.position)]
    assert pa.Table.from_batches([piece.batch, *rest]).equals(TABLE)
    assert files.to_table().equals(TABLE)
    assert files.rows == 1000
    assert TABLE.nbytes / 2 < files.total_bytes() < 2 * TABLE.nbytes  # from statistics alone


def test_sizes_of_texts_that_are_written_short(tmp_path: Path) -> None:
    """A dictionary of long strings takes a few bits per row in the file, but batches of them are large."""
    table = pa.table({"text": ["x" * 500] * 5000, "list": [[1, 2]] * 5000, "flag": [True] * 5000})
    pq.write_table(table, tmp_path / "a.parquet")
    assert source(tmp_path).total_bytes() > 500 * 5000
    pq.write_table(table.slice(0, 0), tmp_path / "a.parquet")
    assert source(tmp_path).total_bytes() == 0


def test_a_file_has_the_rows_that_its_footer_announces(tmp_path: Path) -> None:
    """Arrow returns only the existing rows."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": np.arange(1000)}), path, compression="none", use_dictionary=False)
    data = path.read_bytes()
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[:at] + data[at:].replace(b"\xd0\x0f", b"\x98\x11"))  # 1,000 and 1,100 in Thrift's encoding
    assert pq.read_metadata(path).num_rows == source(path).rows == 1100
    told = r"a\.parquet has 1,000 rows where 1,100 were announced: it is damaged"
    with pytest.raises(SourceError, match=told):
        source(path).to_table()
    with pytest.raises(SourceError, match=told):
        list(dovetail.progressive(path, TABLE, "l.k = r.k"))
    with pytest.raises(SourceError, match=told):
        dovetail.join(path, TABLE, "l.k = r.k")


@pytest.mark.parametrize("rows", [300, 500])
def test_a_file_that_is_replaced_meanwhile_is_noticed(directory: Path, rows: int) -> None:
    files = source(directory)
    pq.write_table(TABLE.slice(0, rows), directory / "part-1.parquet")
    with pytest.raises(SourceError, match=f"part-1\\.parquet has {rows} rows where 400 were announced"):
        list(files.open())


def test_some_columns_in_the_order_asked_for(directory: Path) -> None:
    chosen = dovetail.sources.parquet(directory, columns=["s", "k"])
    assert chosen.schema.names == ["s", "k"]
    assert dovetail.join(chosen, TABLE, "l.k = r.k").column_names == ["s", "k", "k_right", "s_right"]


def test_columns_in_names_of_directories(tmp_path: Path) -> None:
    for year in (2025, 2026):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(TABLE.slice((year - 2025) * 500, 500), tmp_path / f"year={year}" / "a.parquet")
    table = source(tmp_path).to_table()
    assert table.column_names == ["k", "s", "year"]
    assert table.column("year").to_pylist() == [2025] * 500 + [2026] * 500
    assert source(tmp_path, ["year"]).to_table().num_rows == 1000


@pytest.mark.parametrize(
    ("names", "type_", "values"),
    [
        (["2026-01-31", NO_VALUE, "2024-02-29"], pa.date32(), [date(2026, 1, 31), None, date(2024, 2, 29)]),
        (["2026-01-31", "2026-02-30"], pa.string(), ["2026-01-31", "2026-02-30"]),
        (["2026-01-31", "1"], pa.string(), ["2026-01-31", "1"]),
        (["7", "08"], pa.int32(), [7, 8]),
        (["7", "-20260131235959"], pa.int64(), [7, -20260131235959]),
        (["7", NO_VALUE, "2.5"], pa.float64(), [7, None, 2.5]),
        (["a%2Fb", "1 2"], pa.string(), ["a/b", "1 2"]),
    ],
)
@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_types_of_columns_in_names_of_directories(
    tmp_path: Path, names: list[str], type_: pa.DataType, values: list[Any], format_: str
) -> None:
    for number, name in enumerate(names):
        (tmp_path / f"part={name}").mkdir()
        rows = pa.table({"n": [number]})
        if format_ == "csv":
            csv.write_csv(rows, tmp_path / f"part={name}" / "a.csv")
        else:
            pq.write_table(rows, tmp_path / f"part={name}" / "a.parquet")
    joined = dovetail.join(str(tmp_path), pa.table({"n": range(3)}), "l.n = r.n").sort_by("n")
    assert joined["part"].type == type_
    assert joined["part"].to_pylist() == values


def test_places_of_a_table_and_of_files(directory: Path) -> None:
    for scan in (TableScan(TABLE), source(directory)):
        places = list(read_some(scan, ["k"], [0, 390, 990], 20))
        assert [place.position for place in places] == [0, 390, 990]
        assert [place.batch.column("k").to_pylist() for place in places] == [
            list(range(20)),
            list(range(390, 410)),
            list(range(990, 1000)),
        ]


def test_files_in_every_algorithm(directory: Path) -> None:
    expected = dovetail.count(TABLE, TABLE, "l.k = r.k")
    for algorithm in ("auto", "diag", "shj", "nested_loop"):
        assert dovetail.join(directory, TABLE, "l.k = r.k", algorithm=algorithm).num_rows == expected
        steps = list(dovetail.progressive(ds.dataset(directory), str(directory), "l.k = r.k", algorithm=algorithm))
        assert steps[-1].results == expected
    assert dovetail.aggregate(directory, TABLE, "l.k = r.k", {"n": "count(*)"}).to_pydict() == {"n": [expected]}


def test_what_is_wrong_is_said(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        dovetail.join(tmp_path / "nothing.parquet", TABLE, ["k"])
    with pytest.raises(InputError, match="has no column 'x'; it has k, s"):
        dovetail.sources.parquet(directory, columns=["x"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.csv").write_text("k\n1\n")
    with pytest.raises(InputError, match=r"other is not Parquet: dovetail\.join and the others take its path"):
        dovetail.sources.parquet(tmp_path / "other")
    with pytest.raises(InputError, match="not a dataset of Parquet files"):
        dovetail.join(ds.dataset(TABLE), TABLE, ["k"])


@pytest.mark.parametrize("memory", [None, "1MB"])
def test_instants_as_spark_writes_them(tmp_path: Path, memory: str | None) -> None:
    """As INT96, which Arrow reads as nanoseconds by default: 9999-12-31, "until further notice", is beyond them."""
    ends = [datetime(9999, 12, 31), datetime(1, 1, 3), datetime(1969, 12, 31, 23, 59, 59, 999999), None]
    table = pa.table({"till": pa.array(ends, pa.timestamp("us")), "n": range(4)})
    pq.write_table(table, tmp_path / "periods.parquet", use_deprecated_int96_timestamps=True)
    periods = str(tmp_path / "periods.parquet")
    joined = dovetail.join(periods, table, "l.till <= r.till", memory=memory)
    expected = [(a, b) for a in ends for b in ends if a is not None and b is not None and a <= b]
    assert sorted(zip(joined["till"].to_pylist(), joined["till_right"].to_pylist(), strict=True)) == sorted(expected)
    assert joined["till"].type == pa.timestamp("us")


@pytest.mark.parametrize("opened", [str, ds.dataset])
@pytest.mark.parametrize("memory", [None, "1MB"])
def test_types_of_duckdb(tmp_path: Path, memory: str | None, opened: Callable[[str], Any]) -> None:
    """UUID and JSON are types of their own for Arrow, but not for its datasets."""
    path = str(tmp_path / "duck.parquet")
    duckdb.sql("SELECT uuidv7() AS u, i, {'a': i}::JSON AS js, [uuid()] AS us FROM range(20) t(i)").write_parquet(path)
    for on, rows in (("l.u = r.u", 20), ("l.u < r.u", 190), ("l.js = r.js", 20), ("l.i < r.i", 190)):
        joined = dovetail.join(opened(path), opened(path), on, memory=memory)
        assert joined.num_rows == rows
        kept = opened is str
        assert isinstance(joined.schema.field("u").type, pa.BaseExtensionType) == kept
        assert isinstance(joined.schema.field("js").type, pa.BaseExtensionType) == kept


def test_types_that_arrow_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    pl.DataFrame({"n": [1]}, {"n": pl.Int128}).write_parquet(path)
    with pytest.raises(InputError, match=r"wide\.parquet cannot be read as parquet: .*more than 64 bits"):
        dovetail.join(path, path, "l.n = r.n")
