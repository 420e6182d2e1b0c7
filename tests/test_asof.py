"""As-of joins: against the definition with random types, against pandas, Polars and DuckDB, and errors."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.best_oracle import check, numbered, partners
from tests.effort import repeat
from tests.random_rows import random_rows
from tests.seed import generator, seeded

import dovetail
from dovetail.condition.best import parse_best
from dovetail.condition.spellings import spell_asof

COLUMNS = {"t": timedelta(seconds=2), "k": 2, "x": 1.5, "n": 1, "d": "1 day", "s": None, "w": 2}


@pytest.mark.parametrize("case", range(repeat(760)))
def test_random_joins_are_the_definition(case: int) -> None:
    rng = seeded("asof", case)
    on = rng.choice(list(COLUMNS))
    direction = rng.choice(("backward", "forward", "nearest") if on != "s" else ("backward", "forward"))
    tolerance = rng.choice((None, COLUMNS[on]))
    by = rng.choice((None, "k", "s", ["k", "s"], "w", "x"))
    exact, how = rng.random() < 0.7, rng.choice(("left", "inner"))
    left, right = numbered(random_rows(rng)), numbered(random_rows(rng))
    schemas = (left.schema, right.schema)
    spelled = spell_asof(schemas, on, by, direction, tolerance, exact)
    best = parse_best(1, spelled.order_by, "any", schemas, is_distance=spelled.is_distance)
    found = dovetail.asof(left, right, on, how, by=by, direction=direction, tolerance=tolerance, exact=exact)
    check(found, how, best, partners(spelled.on, best, left, right), left.num_rows)


def _quotes(rows: int, keys: int, key: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Unsorted rows with many equal times, which matter for ties."""
    rng = generator("quotes", rows, keys, key)

    def side(value: str) -> pd.DataFrame:
        times = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, rows, rows), unit="s")
        return pd.DataFrame({"ts": times, "key": rng.integers(0, keys, rows), value: np.arange(rows)})

    left, right = side("trade"), side("quote")
    if key == "text":
        left["key"], right["key"] = (frame["key"].map(lambda number: f"S{number:03}") for frame in (left, right))
    return left, right


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("key", ["number", "text", "none"])
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_the_same_as_pandas(direction: Any, key: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.kernels.as_of.FEW_ROWS", 100)
    monkeypatch.setattr("dovetail.calls.read_threads", lambda given: threads)
    monkeypatch.setattr("dovetail.execution.best.FEW_ROWS", 1)
    left, right = _quotes(3000, 40, key)
    by = None if key == "none" else "key"
    if by is None:
        left, right = left.drop(columns="key"), right.drop(columns="key")
    for tolerance, exact in ((None, True), (timedelta(seconds=20), True), (None, False)):
        found = left.dovetail.asof(right, "ts", by=by, direction=direction, tolerance=tolerance, exact=exact)
        wanted = pd.merge_asof(
            left.sort_values("ts", kind="stable"),
            right.sort_values("ts", kind="stable"),
            on="ts",
            by=by,
            direction=direction,
            tolerance=None if tolerance is None else pd.Timedelta(tolerance),
            allow_exact_matches=exact,
        )
        assert found["trade"].tolist() == left["trade"].tolist()
        both = found.merge(wanted, on="trade", suffixes=("", "_wanted"))
        assert both["quote"].astype("float").equals(both["quote_wanted"].astype("float"))


@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_the_same_as_polars(direction: Any) -> None:
    left, right = map(pl.from_pandas, _quotes(3000, 40, "text"))
    found = left.dovetail.asof(right, "ts", by="key", direction=direction, tolerance="30s")
    wanted = left.sort("ts", maintain_order=True).join_asof(
        right.sort("ts", maintain_order=True), on="ts", by="key", strategy=direction, tolerance="30s"
    )
    assert found.sort("trade")["quote"].to_list() == wanted.sort("trade")["quote"].to_list()


def test_the_same_as_duckdb() -> None:
    left, right = (pa.Table.from_pandas(frame) for frame in _quotes(3000, 40, "text"))
    right = right.group_by(["ts", "key"]).aggregate([("quote", "min")]).rename_columns(["ts", "key", "quote"])
    text = "SELECT trade, quote FROM left_rows l ASOF LEFT JOIN right_rows r ON l.key = r.key AND l.ts >= r.ts"
    with duckdb.connect() as connection:
        connection.register("left_rows", left)
        connection.register("right_rows", right)
        wanted = connection.sql(f"{text} ORDER BY trade").fetchall()
    found = dovetail.asof(left, right, "ts", by="key")
    assert list(zip(found["trade"].to_pylist(), found["quote"].to_pylist(), strict=True)) == wanted


def test_names_that_differ() -> None:
    left = pa.table({"ts": [1, 5], "sym": ["A", "B"], "on desk": ["x", "x"]})
    right = pa.table({"time": [0, 4], "ticker": ["A", "B"], "desk": ["x", "x"], "bid": [1, 2]})
    by = [("sym", "ticker"), ("on desk", "desk")]
    assert dovetail.asof(left, right, ("ts", "time"), by=by)["bid"].to_pylist() == [1, 2]


def test_names_of_pandas_and_polars() -> None:
    left, right = _quotes(300, 5, "text")
    right = right.rename(columns={"ts": "time", "key": "ticker"})
    for theirs in (
        {"left_on": "ts", "right_on": "time", "left_by": "key", "right_by": "ticker", "allow_exact_matches": False},
        {"left_on": ["ts"], "right_on": ["time"], "by_left": ["key"], "by_right": ["ticker"], "strategy": "forward"},
    ):
        ours = {"exact": theirs.get("allow_exact_matches", True), "direction": theirs.get("strategy", "backward")}
        found = left.dovetail.asof(right, **theirs)
        assert found.equals(left.dovetail.asof(right, ("ts", "time"), by=("key", "ticker"), **ours))


UTC_NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("type_", "values", "tolerance"),
    [
        (pa.timestamp("ns", "UTC"), [UTC_NOON, UTC_NOON + timedelta(seconds=3)], "2 seconds"),
        (pa.timestamp("ms", "Europe/Berlin"), [UTC_NOON, UTC_NOON + timedelta(seconds=3)], timedelta(seconds=2)),
        (pa.timestamp("s"), [datetime(2024, 1, 1), datetime(2024, 1, 2)], "1h"),
        (pa.date32(), [date(2024, 1, 1), date(2024, 1, 5)], "3 days"),
        (pa.decimal128(30, 4), [Decimal("1.5"), Decimal("9.25")], 2),
        (pa.decimal128(12, 4), [Decimal("1.5"), Decimal("9.25")], 2.5),
        (pa.uint64(), [1, 2**64 - 1], 5),
        (pa.int8(), [-128, 127], 5),
        (pa.float32(), [1.5, 9.25], 0.5),
        (pa.duration("ms"), [timedelta(seconds=1), timedelta(seconds=9)], "2 seconds"),
    ],
)
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_every_type_that_has_an_order(type_: pa.DataType, values: list[Any], tolerance: Any, direction: str) -> None:
    left = pa.table({"t": pa.array([*values, None], type_)})
    right = pa.table({"t": pa.array([None, values[1], values[0]], type_), "row": [0, 1, 2]})
    for kwargs in ({}, {"tolerance": tolerance}):
        found = dovetail.asof(left, right, "t", direction=direction, **kwargs)
        assert found["row"].to_pylist() == [2, 1, None]
    first, second = values
    apart = dovetail.asof(left, right.slice(1), "t", direction=direction, tolerance=tolerance, exact=False)
    assert apart["row"].to_pylist() == [None, None, None], (first, second)


def test_timestamps_of_different_units() -> None:
    left = pa.table({"t": pa.array([datetime(2024, 1, 1, 0, 0, 1)], pa.timestamp("s"))})
    times = [datetime(2024, 1, 1, 0, 0, 0, 999_999), datetime(2024, 1, 1, 0, 0, 1, 1)]
    right = pa.table({"t": pa.array(times, pa.timestamp("us")), "row": [0, 1]})
    assert [dovetail.asof(left, right, "t", direction=d)["row"].to_pylist() for d in ("backward", "forward")] == [
        [0],
        [1],
    ]


def test_nothing_on_one_side() -> None:
    rows = pa.table({"t": [1, 2], "s": ["a", None]})
    for left, right, how in ((rows, rows[:0], "left"), (rows[:0], rows, "left"), (rows, rows[:0], "inner")):
        found = dovetail.asof(left, right, "t", how, by="s")
        assert found.num_rows == (2 if left.num_rows and how == "left" else 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "tt"}, "r.tt: no such column"),
        ({"on": ["t", 1]}, "a pair of names"),
        ({"on": "t", "by": []}, "by is an empty list"),
        ({"on": "t", "tolerance": "2 seconds"}, "tolerance between numbers is a number"),
        ({"on": "t", "tolerance": -1}, "0 or more"),
        ({"on": "ts", "tolerance": 5}, "a length of time, such as '10 minutes'"),
        ({"on": "t", "direction": "sideways"}, "direction must be one of backward, forward, nearest"),
        ({"on": "t", "how": "full"}, "exchange the inputs"),
        ({"on": "t", "how": "left_anti"}, "not which is the best"),
        ({"left_on": "t"}, "left_on= and right_on= belong together"),
        ({"on": "t", "left_on": "t", "right_on": "t"}, "in place of on="),
        ({"on": "t", "left_by": ["s", "t"], "right_by": "s"}, "the same number of columns"),
        ({"on": "t", "direction": "forward", "strategy": "nearest"}, "strategy= is direction= here"),
        ({"on": "t", "left_index": True}, "An index level with a name is a column"),
        ({}, "there is no condition"),
        ({"on": "s", "direction": "nearest"}, "l.s"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, Any], message: str) -> None:
    rows = pa.table({"t": [1], "ts": pa.array([datetime(2024, 1, 1)]), "s": ["a"]})
    with pytest.raises(dovetail.DovetailError, match=message):
        dovetail.asof(rows, rows, **options)
