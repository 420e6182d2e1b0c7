"""DataFrames keep their types, labels and values in the result of a join."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dovetail
from dovetail.errors import InputError

LONG = 2**53 + 1  # not exact as a float
TIMES = pd.to_datetime(pd.Series(["2020-01-01", None, "2020-01-03", "2020-01-04"]))
LEVELS = ["low", "none", "high"]


def arrow(values: list[Any], type_: pa.DataType) -> pd.Series:
    return pd.Series(values, dtype=pd.ArrowDtype(type_))


COLUMNS: dict[str, pd.Series] = {
    "int64": pd.Series([LONG, 1, 2, 3]),
    "int8": pd.Series([1, 2, 3, 4], dtype="int8"),
    "uint64": pd.Series([2**64 - 1, 0, 1, 2], dtype="uint64"),
    "float": pd.Series([1.5, np.nan, 2, 3]),
    "float32": pd.Series([1.5, np.nan, 2, 3], dtype="float32"),
    "bool": pd.Series([True, False, True, False]),
    "Int64": pd.Series([LONG, None, 1, 2], dtype="Int64"),
    "UInt8": pd.Series([1, None, 1, 2], dtype="UInt8"),
    "Float64": pd.Series([1.5, None, 1, 2], dtype="Float64"),
    "boolean": pd.Series([True, None, False, True], dtype="boolean"),
    "string": pd.Series(["a", None, "b", "c"], dtype="string"),
    "string in Arrow": pd.Series(["a", None, "b", "c"], dtype="string[pyarrow]"),
    "Arrow int": arrow([LONG, None, 1, 2], pa.int64()),
    "Arrow string": arrow(["a", None, "b", "c"], pa.string()),
    "Arrow bool": arrow([True, None, False, True], pa.bool_()),
    "Arrow decimal": arrow([Decimal("1.50"), None, Decimal(2), Decimal(3)], pa.decimal128(10, 2)),
    "Arrow list": arrow([[1], None, [], [2, 3]], pa.list_(pa.int64())),
    "Arrow struct": arrow([{"a": 1}, None, {"a": 2}, {"a": 3}], pa.struct({"a": pa.int64()})),
    "Arrow dictionary": arrow(["a", "b", None, "a"], pa.dictionary(pa.int8(), pa.string())),
    "Arrow duration": arrow([dt.timedelta(days=1), None, dt.timedelta(0), None], pa.duration("us")),
    "category": pd.Series(["low", "high", None, "low"], dtype=pd.CategoricalDtype(LEVELS)),
    "ordered": pd.Series(["low", "high", None, "low"], dtype=pd.CategoricalDtype(LEVELS, ordered=True)),
    "category of numbers": pd.Series([3, 1, None, 1], dtype=pd.CategoricalDtype([5, 3, 1])),
    "datetime": TIMES,
    "datetime in seconds": TIMES.astype("datetime64[s]"),
    "with a zone": TIMES.dt.tz_localize("Europe/Berlin"),
    "with a zone of zoneinfo": TIMES.dt.tz_localize(ZoneInfo("Europe/Berlin")),
    "with an offset": pd.to_datetime(pd.Series(["2020-01-01T00:00:00+02:00"] * 4)),
    "timedelta": pd.to_timedelta(pd.Series([1, None, 2, 3]), unit="s"),
    "period": pd.Series(pd.period_range("2020-01", periods=4, freq="M")),
    "interval": pd.Series(pd.interval_range(0.0, 4.0)),
    "interval of integers": pd.Series(pd.interval_range(0, 4)),
    "sparse": pd.Series(pd.arrays.SparseArray([0, 0, 1, 0])),
    "text": pd.Series(["a", None, "b", "c"], dtype=object),
    "integer objects": pd.Series([LONG, None, 1, 2], dtype=object),
    "boolean objects": pd.Series([True, None, False, True], dtype=object),
    "dates": pd.Series([dt.date(2020, 1, 1), None, dt.date(2020, 1, 2), None], dtype=object),
    "times": pd.Series([dt.time(1), None, dt.time(2), None], dtype=object),
    "decimals": pd.Series([Decimal("1.5"), None, Decimal("2.5"), None], dtype=object),
    "bytes": pd.Series([b"x", None, b"y", b""], dtype=object),
    "lists": pd.Series([[1], [2, 3], None, []], dtype=object),
    "arrays": pd.Series([np.array([1, 2]), np.array([3]), None, np.array([4])], dtype=object),
    "dicts": pd.Series([{"a": 1}, {"a": 2}, None, {"a": 3}], dtype=object),
    "nothing": pd.Series([None] * 4, dtype=object),
}
PADDED = {  # if the type has no missing value
    "int64": "Int64",
    "int8": "Int8",
    "uint64": "UInt64",
    "bool": "boolean",
    "sparse": "Int64",
    "interval of integers": "interval[float64, right]",
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_come_back_as_they_were(name: str) -> None:
    column = COLUMNS[name]
    frame = pd.DataFrame({"i": range(4), "a": column})
    for how in ("inner", "left", "full", "left_semi"):
        found = frame.dovetail.join(frame, "l.i = r.i", how).sort_values("i", ignore_index=True)
        pd.testing.assert_series_equal(found["a"], column, check_names=False)
        if how != "left_semi":
            pd.testing.assert_series_equal(found["a_right"], column, check_names=False)
    found = frame.dovetail.join(frame.iloc[:1], "l.i = r.i", "left").sort_values("i", ignore_index=True)
    padded = found["a_right"]
    assert str(padded.dtype) == PADDED.get(name, str(column.dtype))
    assert padded.isna().tolist() == [name == "nothing", True, True, True]
    if name in ("int64", "uint64", "int8"):
        assert int(padded[0]) == int(column[0])
    elif name not in PADDED:
        assert repr(padded.dropna().tolist()) == repr(column.iloc[:1].dropna().tolist())
    empty = frame.dovetail.join(frame, "l.i > r.i + 10")
    assert empty["a"].dtype == column.dtype
    assert empty.shape == (0, 4)


@pytest.mark.parametrize("name", ["Int64", "UInt8", "boolean", "string", "Arrow int", "integer objects", "int64"])
def test_numbers_keep_their_digits_in_arrow_results(name: str) -> None:
    """pyarrow's `to_pandas()` on results of `dovetail.join` and `multijoin`."""
    frame = pd.DataFrame({"i": range(4), "a": COLUMNS[name]})
    few = frame.iloc[:1]
    found = [
        dovetail.join(frame, frame, "l.i = r.i").to_pandas()["a_right"],
        dovetail.join(frame, frame, "l.i = r.i", "left_semi").to_pandas()["a"],
        dovetail.join(frame, few, "l.i = r.i", "left").to_pandas()["a_right"],
        dovetail.multijoin({"x": frame, "y": frame, "z": frame}, "x.i = y.i AND y.i = z.i").to_pandas()["z_a"],
    ]
    for column in found:
        assert column[0] == COLUMNS[name][0]
        assert column.dtype != np.dtype(float)


def test_groups_come_back_as_they_were() -> None:
    frame = pd.DataFrame({"c": COLUMNS["ordered"], "I": COLUMNS["Int64"], "i": range(4)})
    found = frame.dovetail.aggregate(frame, "l.i = r.i", {"n": "count(*)", "most": "max(l.I)"}, by=["r.c", "r.I"])
    assert found.dtypes.astype(str).to_dict() == {"c": "category", "I": "Int64", "n": "int64", "most": "Int64"}
    assert found["c"].dtype == COLUMNS["ordered"].dtype
    assert LONG in found["most"].tolist()
    levels = pl.DataFrame({"e": pl.Series(["low", "high"], dtype=pl.Enum(LEVELS))})
    assert levels.dovetail.aggregate(levels, ["e"], {"n": "count(*)"}, by="l.e").schema["e"] == pl.Enum(LEVELS)


def test_results_can_be_written_to() -> None:
    frame = pd.DataFrame({"i": [1, 2]})
    found = frame.dovetail.join(frame, "l.i = r.i")
    found.loc[0, "i"] = 7
    found["i_right"].to_numpy()[0] = 8
    assert sorted(found.iloc[0]) == [7, 8]


def test_levels_of_an_index_that_have_names_are_columns() -> None:
    frame = pd.DataFrame({"v": [1, 2, 3]}, index=pd.CategoricalIndex(["a", "b", "c"], name="key"))
    found = frame.dovetail.join(frame, ["key"]).sort_values("v", ignore_index=True)
    assert found.columns.tolist() == ["key", "v", "v_right"]
    assert found["key"].dtype == frame.index.dtype
    assert found["key"].tolist() == ["a", "b", "c"]
    assert dovetail.join(frame, frame, "l.key = r.key").column_names == ["key", "v", "key_right", "v_right"]
    assert frame.dovetail.count(frame, "l.key = r.key AND l.v < 3") == 2
    pairs = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["p", None])
    several = pd.DataFrame({"v": [1, 2]}, index=pairs)
    assert several.dovetail.join(several, "l.p = r.p").columns.tolist() == ["p", "v", "p_right", "v_right"]
    unnamed = pd.DataFrame({"v": [1, 2]}, index=[7, 8])
    assert unnamed.dovetail.join(unnamed, ["v"]).columns.tolist() == ["v"]
    assert isinstance(unnamed.dovetail.join(unnamed, ["v"]).index, pd.RangeIndex)


def test_a_level_and_a_column_of_one_name() -> None:
    frame = pd.DataFrame({"v": [1, 2, 3]})
    same = frame.set_index("v", drop=False)
    assert same.dovetail.join(same, ["v"]).columns.tolist() == ["v"]
    other = frame.set_index(pd.Index([3, 4, 5], name="v"))
    with pytest.raises(InputError, match=r"a level of the index and a column are both called 'v', and differ"):
        other.dovetail.join(other, ["v"])


def test_labels_that_are_no_text() -> None:
    found = pd.DataFrame({0: [1, 2], "b": [3, 4]}).dovetail.join(pd.DataFrame({0: [1], 1: [2]}), "l.`0` = r.`0`")
    assert found.columns.tolist() == [0, "b", "0_right", 1]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"m": [1, "a"]}), "column m"),
        (pd.DataFrame({"m": [1j]}), "column m"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns called a"),
        (pl.DataFrame({"m": pl.Series([object()], dtype=pl.Object)}), "column 'm' is Object"),
        (pl.DataFrame({"m": pl.Series([1], dtype=pl.Int128)}), "column 'm' is Int128"),
    ],
    ids=["mixed", "complex", "twice", "objects", "128 bits"],
)
def test_what_no_column_of_a_table_can_hold(frame: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        dovetail.join(frame, frame, "true")


def test_polars_columns_come_back_as_they_were() -> None:
    enum = pl.Enum(LEVELS)
    frame = pl.DataFrame(
        {
            "i": [1, 2, 3],
            "enum": pl.Series(["low", "high", None], dtype=enum),
            "categorical": pl.Series(["b", "a", None], dtype=pl.Categorical),
            "list": [[1], [2, 3], None],
            "list of enums": pl.Series([["low"], [], None], dtype=pl.List(enum)),
            "array": pl.Series([[1, 2], None, [3, 4]], dtype=pl.Array(pl.Int64, 2)),
            "struct": [{"a": 1, "b": "x"}, None, {"a": 2, "b": None}],
            "duration": [dt.timedelta(days=1), None, dt.timedelta(0)],
            "zone": pl.Series([dt.datetime(2020, 1, 1)] * 3).dt.replace_time_zone("Europe/Berlin"),
            "millis": pl.Series([dt.datetime(2020, 1, 1)] * 3, dtype=pl.Datetime("ms")),
            "time": [dt.time(1), None, dt.time(2)],
            "decimal": pl.Series(["1.5", None, "2"]).cast(pl.Decimal(10, 2)),
            "bytes": [b"x", None, b""],
            "bool": [True, None, False],
            "long": [LONG, None, 1],
            "small": pl.Series([1, 2, 3], dtype=pl.UInt8),
            "null": [None] * 3,
        }
    )
    for how in ("inner", "full", "left_semi"):
        found = frame.dovetail.join(frame, "l.i = r.i", how).sort("i")
        assert found.select(frame.columns).equals(frame)
        assert found.select(frame.columns).schema == frame.schema
        if how != "left_semi":
            right = found.select([f"{name}_right" for name in frame.columns]).rename(
                lambda name: name[: -len("_right")]
            )
            assert right.equals(frame)
            assert right.schema == frame.schema
