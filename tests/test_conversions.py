"""pandas and Polars frames round-trip: joins by Dovetail compared with `merge` and `join` of these libraries.

Types, labels, categories and nulls are equal. Tests name the intended differences, where the libraries lose
information: pandas converts integers to floats if an outer join pads them, and matches nulls with nulls.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal as assert_polars_equal

from dovetail.errors import InputError

N = 6
LATER = pd.date_range("2024-03-30", periods=N, freq="h")
PANDAS: dict[str, Any] = {
    "int64": np.arange(N),
    "uint8": np.arange(N, dtype="uint8"),
    "float32": np.array([0.5, np.nan, 1, 2, 3, 4], "float32"),
    "bool": np.array([True, False] * 3),
    "Int64": pd.array([2**60 + 1, None, 3, 4, 5, 6], "Int64"),
    "UInt16": pd.array([1, None, 3, 4, 5, 6], "UInt16"),
    "Float64": pd.array([1.5, None, 3, 4, 5, 6], "Float64"),
    "boolean": pd.array([True, None, False, True, False, None], "boolean"),
    "string": pd.array(["a", None, "c", "d", "é", ""], "string"),
    "string_arrow": pd.array(["a", None, "c", "d", "é", ""], "string[pyarrow]"),
    "object_text": np.array(["a", None, "c", "d", "é", ""], object),
    "object_bytes": np.array([b"a", b"", b"c", b"d", b"e", b"f"], object),
    "object_dates": np.array([date(2020, 1, n) for n in range(1, N + 1)], object),
    "object_decimals": np.array(
        [Decimal("1.50"), Decimal("2.25"), *map(Decimal, ("3.00", "4.00", "5.00", "6.00"))], object
    ),
    "category": pd.Categorical(["b", "a", None, "b", "c", "a"], categories=["c", "b", "a", "unused"]),
    "ordered": pd.Categorical(["b", "a", None, "b", "c", "a"], categories=["c", "b", "a"], ordered=True),
    "category_int": pd.Categorical([3, 1, 2, 3, 1, 2]),
    "datetime": LATER,
    "datetime_ms": LATER.as_unit("ms"),
    "datetime_tz": LATER.tz_localize("Europe/Berlin", ambiguous=False, nonexistent="shift_forward"),
    "nat": pd.to_datetime([None, *LATER[1:]]),
    "timedelta": pd.to_timedelta(np.arange(N), "min"),
    "period": pd.period_range("2020-01", periods=N, freq="M"),
    "interval": pd.interval_range(0.0, periods=N),
    "arrow_int": pd.array([1, None, 3, 4, 5, 6], pd.ArrowDtype(pa.int32())),
    "arrow_text": pd.array(["a", None, "c", "d", "e", "f"], pd.ArrowDtype(pa.string())),
    "arrow_stamp": pd.array(LATER, pd.ArrowDtype(pa.timestamp("us", "UTC"))),
    "arrow_list": pd.array([[1], None, [2, 3], [], [4], [5]], pd.ArrowDtype(pa.list_(pa.int64()))),
    "arrow_decimal": pd.array([Decimal("1.50"), None, *map(Decimal, "3456")], pd.ArrowDtype(pa.decimal128(9, 2))),
    "sparse": pd.arrays.SparseArray([0, 0, 1, 0, 2, 0]),
}
POLARS: dict[str, pl.Series] = {
    "Int8": pl.Series([1, None, 3, 4, 5, 6], dtype=pl.Int8),
    "Int64": pl.Series([2**60 + 1, None, 3, 4, 5, 6]),
    "UInt64": pl.Series([2**63 + 1, None, 3, 4, 5, 6], dtype=pl.UInt64),
    "Float32": pl.Series([1.5, None, float("nan"), 4, 5, 6], dtype=pl.Float32),
    "Boolean": pl.Series([True, None, False, True, False, None]),
    "String": pl.Series(["a", None, "c", "d", "é", ""]),
    "Binary": pl.Series([b"a", None, b"c", b"", b"e", b"f"]),
    "Date": pl.Series([date(2020, 1, n) for n in range(1, N + 1)]),
    "Time": pl.Series([time(n) for n in range(N)]),
    "Datetime_ms": pl.Series([datetime(2020, 1, n) for n in range(1, N + 1)], dtype=pl.Datetime("ms")),
    "Datetime_ns": pl.Series([datetime(2020, 1, n) for n in range(1, N + 1)], dtype=pl.Datetime("ns")),
    "Datetime_tz": pl.Series([datetime(2020, 1, n) for n in range(1, N + 1)]).dt.replace_time_zone("Europe/Berlin"),
    "Duration": pl.Series([timedelta(minutes=n) for n in range(N)]),
    "Decimal": pl.Series([Decimal("1.50"), None, *map(Decimal, "3456")], dtype=pl.Decimal(9, 2)),
    "Categorical": pl.Series(["b", "a", None, "b", "c", "a"], dtype=pl.Categorical),
    "Enum": pl.Series(["b", "a", None, "b", "c", "a"], dtype=pl.Enum(["c", "b", "a", "unused"])),
    "List": pl.Series([[1], None, [2, 3], [], [4], [5]]),
    "Array": pl.Series([[1, 2]] * N, dtype=pl.Array(pl.Int64, 2)),
    "Struct": pl.Series([{"x": n, "y": str(n)} for n in range(N)]),
    "Null": pl.Series([None] * N, dtype=pl.Null),
}
HOW = ("inner", "left")


def pandas_frames(values: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    left = pd.DataFrame({"k": [0, 1, 2, 3, 4, 5], "v": values})
    right = pd.DataFrame({"k": [5, 3, 1, 7], "w": values[[0, 2, 4, 5]] if hasattr(values, "__getitem__") else values})
    return left, right


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", PANDAS)
def test_pandas_comes_back(kind: str, how: str) -> None:
    left, right = pandas_frames(PANDAS[kind])
    if how == "left":
        right = right.drop(columns="w")
    expected = left.merge(right, on="k", how=how)
    found = left.dovetail.join(right, "k", how).sort_values("k", ignore_index=True)
    pd.testing.assert_frame_equal(found, expected)


PADDED = [kind for kind in PANDAS if kind not in ("int64", "uint8", "bool", "sparse", "interval", "category_int")]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", PADDED)
def test_pandas_comes_back_with_nulls_of_an_outer_join(kind: str) -> None:
    left, right = pandas_frames(PANDAS[kind])
    expected = left.merge(right, on="k", how="outer")
    found = left.dovetail.join(right, "k", "outer").sort_values("k", ignore_index=True)
    if found["w"].dtype == object:  # a missing object is None here, but NaN in merge
        for name in ("v", "w"):
            found[name], expected[name] = (f[name].where(f[name].notna(), None) for f in (found, expected))
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize(("kind", "padded"), [("int64", "Int64"), ("uint8", "UInt8"), ("bool", "boolean")])
def test_numbers_that_an_outer_join_pads_stay_whole(kind: str, padded: str) -> None:
    """`merge` converts them to floats or objects."""
    left, right = pandas_frames(PANDAS[kind])
    found = left.dovetail.join(right, "k", "left").sort_values("k", ignore_index=True)
    expected = left.merge(right.astype({"w": padded}), on="k", how="left")
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", [k for k in PANDAS if k not in ("arrow_list", "object_bytes", "interval", "sparse")])
@pytest.mark.parametrize("how", ["inner", "outer"])
def test_keys_of_pandas_come_back(kind: str, how: str) -> None:
    left = pd.DataFrame({"k": PANDAS[kind], "n": range(N)}).dropna(subset=["k"]).drop_duplicates("k", ignore_index=True)
    right = left.iloc[::-2].rename(columns={"n": "m"}).reset_index(drop=True).astype({"m": "Int64"})
    left = left.iloc[1:].reset_index(drop=True).astype({"n": "Int64"})
    expected = left.merge(right, on="k", how=how)
    found = left.dovetail.join(right, "k", how)
    order = ["n", "m"]
    pd.testing.assert_frame_equal(
        found.sort_values(order, ignore_index=True), expected.sort_values(order, ignore_index=True)
    )


def polars_frames(values: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    left = pl.DataFrame({"k": [0, 1, 2, 3, 4, 5], "v": values})
    return left, pl.DataFrame({"k": [5, 3, 1, 7], "w": values.gather([0, 2, 4, 5])})


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["inner", "left", "full", "semi"])
@pytest.mark.parametrize("kind", POLARS)
def test_polars_comes_back(kind: str, how: str) -> None:
    left, right = polars_frames(POLARS[kind])
    expected = left.join(right, on="k", how=how, coalesce=True if how == "full" else None)
    found = left.dovetail.join(right, "k", how)
    assert found.schema == expected.schema
    assert_polars_equal(found.sort("k"), expected.sort("k"), categorical_as_str=True)
    lazy = left.lazy().dovetail.join(right.lazy(), "k", how)
    assert isinstance(lazy, pl.LazyFrame)
    assert_polars_equal(lazy.collect().sort("k"), expected.sort("k"), categorical_as_str=True)


def test_indexes_of_pandas() -> None:
    """Named levels are columns, as with `on` of `merge`; the result has a new index."""
    pairs = pd.MultiIndex.from_arrays(
        [pd.array([1, 2, None], "Int64"), pd.Categorical(["a", "b", "a"])], names=["p", "q"]
    )
    frame = pd.DataFrame({"v": [1, 2, 3]}, index=pairs)
    other = pd.DataFrame({"q": pd.Categorical(["a", "b"]), "w": ["x", "y"]})
    found = frame.dovetail.join(other, "q").sort_values("v", ignore_index=True)
    expected = frame.reset_index().merge(other, on="q").sort_values("v", ignore_index=True)
    pd.testing.assert_frame_equal(found, expected)
    assert isinstance(found.index, pd.RangeIndex)
    plain = pd.DataFrame({"v": [1, 2]}, index=[7, 8])
    pd.testing.assert_frame_equal(plain.dovetail.join(plain, "v"), plain.merge(plain, on="v"))


def test_nulls_match_nothing() -> None:
    """As in Spark, SQL and Polars. `merge` matches them, like <=> here."""
    frame = pd.DataFrame({"k": pd.array([1, None], "Int64")})
    assert len(frame.dovetail.join(frame, "k")) == 1
    assert len(frame.dovetail.join(frame, "l.k <=> r.k")) == len(frame.merge(frame, on="k")) == 2


def test_ordered_categories_are_compared_in_their_order() -> None:
    sizes = pd.CategoricalDtype(["small", "medium", "large"], ordered=True)
    frame = pd.DataFrame({"s": pd.Categorical(["large", "small", "medium"], dtype=sizes)})
    found = frame.dovetail.join(frame, "l.s < r.s")
    crossed = frame.merge(frame, how="cross", suffixes=("", "_right"))
    expected = crossed[crossed["s"] < crossed["s_right"]]
    columns = ["s", "s_right"]
    pd.testing.assert_frame_equal(
        found.sort_values(columns, ignore_index=True), expected.sort_values(columns, ignore_index=True)
    )


def test_keys_of_other_categories_come_as_values() -> None:
    left = pd.DataFrame({"k": pd.Categorical(["a", "b"])})
    right = pd.DataFrame({"k": pd.Categorical(["b", "c"])})
    found = left.dovetail.join(right, "k", "full")
    assert sorted(found["k"].astype(object)) == ["a", "b", "c"]
    assert sorted(left.dovetail.join(right, "k", "right")["k"]) == ["b", "c"]
    assert left.dovetail.join(right, "k", "right")["k"].dtype == right["k"].dtype
    table = pa.table({"k": ["b", "c"]})
    assert sorted(left.dovetail.join(table, "k", "full")["k"].astype(object)) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [pd.DataFrame, pa.Table])
def test_several_columns_of_one_name_are_refused(kind: type) -> None:
    import dovetail

    twice = pa.table([[1], [2], [3]], names=["k", "a", "a"])
    frame = pd.DataFrame([[1, 2, 3]], columns=["k", "a", "a"]) if kind is pd.DataFrame else twice
    for inputs in ((frame, pa.table({"k": [1]})), (pa.table({"k": [1]}), frame)):
        with pytest.raises(InputError, match=r"an input has several columns called a. Rename them before the join"):
            dovetail.join(*inputs, "k")
