"""Ordered categoricals are compared in their order, and pandas' periods only with periods of the same kind."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dovetail
from dovetail.errors import ConditionError

LEVELS = ["low", "mid", "high"]  # as text they would sort differently
VALUES = ["high", "low", None, "mid", "low", "high"]
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
PANDAS = pd.DataFrame({"i": range(6), "c": pd.Categorical(VALUES, LEVELS, ordered=True), "t": VALUES})
FRAMES = {
    "pandas": PANDAS,
    "polars": pl.DataFrame({"i": range(6), "c": pl.Series(VALUES, dtype=pl.Enum(LEVELS)), "t": VALUES}),
    "arrow": pa.Table.from_pandas(PANDAS),
    "chunks": pa.concat_tables([pa.Table.from_pandas(PANDAS[:2]), pa.Table.from_pandas(PANDAS[2:])]),
}


def pairs(table: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(table["i"].to_pylist(), table["i_right"].to_pylist(), strict=True))


def in_steps(*inputs: Any, **options: Any) -> pa.Table:
    return pa.Table.from_batches(step.batch for step in dovetail.progressive(*inputs, **options))


def expected(symbol: str, key: Callable[[str], Any] = LEVELS.index) -> list[tuple[int, int]]:
    return [
        (i, j)
        for i, a in enumerate(VALUES)
        for j, b in enumerate(VALUES)
        if a is not None and b is not None and OPERATORS[symbol](key(a), key(b))
    ]


@pytest.mark.parametrize("symbol", OPERATORS)
@pytest.mark.parametrize("library", FRAMES)
def test_ordered_categoricals_are_compared_in_their_order(library: str, symbol: str) -> None:
    frame, on = FRAMES[library], f"l.c {symbol} r.c"
    assert pairs(dovetail.join(frame, frame, on)) == expected(symbol)
    for memory in (None, "2MB"):
        found = in_steps(frame, frame, on, memory=memory)
        assert pairs(found) == expected(symbol)
        if found.num_rows:
            chunk = found["c"].chunk(0)
            assert chunk.type.ordered
            assert chunk.dictionary.to_pylist() == LEVELS
    assert dovetail.count(frame, frame, on) == len(expected(symbol))
    several = {"x": frame, "y": frame, "z": frame}
    assert dovetail.multijoin(several, f"x.c {symbol} y.c AND y.i = z.i").num_rows == len(expected(symbol))
    by_text = f"CAST(l.c AS STRING) {symbol} CAST(r.c AS STRING)"
    assert pairs(dovetail.join(frame, frame, by_text)) == expected(symbol, str)
    assert pairs(dovetail.join(frame, frame, f"CAST(l.c AS STRING) {symbol} r.t")) == expected(symbol, str)


def test_constants_and_order_by() -> None:
    def rows(on: str) -> list[int]:
        return sorted(dovetail.join(PANDAS, PANDAS, f"{on} AND l.i = r.i")["i"].to_pylist())

    assert rows("l.c < 'high'") == [1, 3, 4]
    assert rows("l.c BETWEEN 'mid' AND 'high'") == [0, 3, 5]
    assert rows("l.c IN ('mid', 'none')") == [3]
    assert rows("NOT l.c <= 'low'") == [0, 3, 5]
    steps = dovetail.progressive(PANDAS, PANDAS, "l.i = r.i", order_by="l.c DESC")
    assert [value for step in steps for value in step.batch["c"].to_pylist()] == [
        *("high", "high", "mid", "low", "low", None)
    ]
    numbers = pd.DataFrame({"i": range(3), "c": pd.Categorical([3, 1, 2], [3, 1, 2], ordered=True)})
    assert pairs(dovetail.join(numbers, numbers, "l.c < r.c")) == [(0, 1), (0, 2), (1, 2)]
    assert pairs(dovetail.join(numbers, numbers, "CAST(l.c AS BIGINT) < CAST(r.c AS BIGINT)")) == [
        (1, 0),
        (1, 2),
        (2, 0),
    ]


def test_results_say_nothing_of_it() -> None:
    for how in ("inner", "left_semi"):
        assert not dovetail.join(PANDAS, PANDAS, "l.c < r.c", how).schema.field("c").metadata


OTHER = PANDAS.assign(c=PANDAS["c"].cat.reorder_categories(LEVELS[::-1]))
MIXED = pa.concat_tables([FRAMES["arrow"], pa.Table.from_pandas(OTHER)])


@pytest.mark.parametrize(
    ("right", "on", "message"),
    [
        (OTHER, "l.c < r.c", r"the categories differ \(low < mid < high, and high < mid < low\)"),
        (PANDAS.assign(c=PANDAS["c"].cat.as_unordered()), "l.c < r.c", "r.c is not in the order of these categories"),
        (MIXED, "l.i < r.i AND l.c < r.c", "the categories of r.c are not known"),
        (PANDAS, "l.c < r.t", r"compare values, whatever their order: CAST\(l.c AS STRING\)"),
        (PANDAS, "l.c < 'little'", "'little' is none of the categories of l.c: low < mid < high"),
        (PANDAS, "greatest(l.c, r.c) = 'high'", "compares values; l.c is an ordered categorical"),
        (PANDAS, "CASE WHEN l.i > 2 THEN l.c ELSE 'low' END < 'mid'", "is an ordered categorical"),
        (PANDAS, "coalesce(l.c, 'low') < r.c", "is not in the order"),
    ],
)
def test_other_orders_are_refused(right: Any, on: str, message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        dovetail.join(PANDAS, right, on)


def test_the_advice_works() -> None:
    found = dovetail.join(
        PANDAS, PANDAS, "CAST(CASE WHEN l.i > 2 THEN l.c ELSE 'low' END AS STRING) < 'lox' AND l.i = r.i"
    )
    assert sorted(found["i"].to_pylist()) == [0, 1, 2, 4, 5]
    with pytest.raises(ConditionError, match="not known before its rows are read"):
        in_steps(FRAMES["arrow"].to_reader(), PANDAS, "l.c < r.c")
    found = in_steps(FRAMES["arrow"].to_reader(), PANDAS, "CAST(l.c AS STRING) < CAST(r.c AS STRING)")
    assert pairs(found) == expected("<", str)
    with pytest.raises(ConditionError, match=r"max\(l.c\) compares values"):
        dovetail.aggregate(PANDAS, PANDAS, "true", {"m": "max(l.c)"})
    assert dovetail.aggregate(PANDAS, PANDAS, "true", {"m": "max(CAST(l.c AS STRING))"})["m"].to_pylist() == ["mid"]


MONTHS = pd.DataFrame(
    {
        "i": range(4),
        "p": pd.period_range("2020-01", periods=4, freq="M"),
        "d": pd.date_range("2020-01-01", periods=4, freq="MS"),
    }
)


def test_periods_of_one_frequency_are_compared() -> None:
    assert pairs(dovetail.join(MONTHS, MONTHS, "l.p < r.p")) == [(i, j) for i in range(4) for j in range(i + 1, 4)]
    assert pairs(dovetail.join(MONTHS, MONTHS, ["p"])) == [(i, i) for i in range(4)]
    assert pairs(dovetail.join(MONTHS, MONTHS, "l.p IN (r.p, r.p)")) == [(i, i) for i in range(4)]
    assert dovetail.count(MONTHS, MONTHS, "l.p IS NULL") == 0
    counts = MONTHS.dovetail.aggregate(MONTHS, "l.p <= r.p", {"n": "count(*)", "p_n": "count(l.p)"}, by="l.p")
    assert counts["p"].dtype == MONTHS["p"].dtype
    assert dict(zip(counts["p"], counts["n"], strict=True)) == dict(zip(MONTHS["p"], [4, 3, 2, 1], strict=True))
    assert dovetail.aggregate(MONTHS, MONTHS, ["p"], {"n": "count(*)"}, by="l.p").to_pandas()["p"].dtype == "period[M]"
    stamps = MONTHS.assign(p=MONTHS["p"].dt.to_timestamp())  # as the message says
    assert pairs(dovetail.join(stamps, MONTHS, "l.p = r.d")) == [(i, i) for i in range(4)]


DAYS = MONTHS.assign(p=MONTHS["p"].dt.asfreq("D"))


@pytest.mark.parametrize(
    "on", ["l.p < r.d", "l.p < 600", "l.p - r.p < 2", "l.p = '2020-01'", "CAST(l.p AS BIGINT) < 2"]
)
def test_periods_are_no_numbers(on: str) -> None:
    with pytest.raises(ConditionError, match=r"periods \(M\).*frame\['p'\].dt.to_timestamp\(\)"):
        dovetail.join(MONTHS, MONTHS, on)


def test_periods_of_two_frequencies_and_aggregates_of_them() -> None:
    with pytest.raises(ConditionError, match="of the same frequency only"):
        dovetail.join(MONTHS, DAYS, "l.p < r.p")
    with pytest.raises(ConditionError, match="of the same frequency only"):
        dovetail.aggregate(MONTHS, MONTHS, "true", {"s": "sum(l.p)"})
