"""Joins that find the best partners: chunks within a budget, readers, limits, threads, wide strings, Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.seed import generator

import dovetail


def _sides(rows: int) -> tuple[pa.Table, pa.Table]:
    rng = generator("best in pieces", rows)

    def side(value: str) -> pa.Table:
        numbers = rng.integers(0, 20, rows)
        return pa.table(
            {
                "t": rng.integers(0, 4 * rows, rows),
                "k": pa.array(numbers, mask=rng.random(rows) < 0.1),
                "s": [f"row {number}" for number in numbers],
                "b": pa.array(rng.random(rows) < 0.5),
                "c": pa.array([f"c{number % 3}" for number in numbers]).dictionary_encode(),
                "d": [[number] for number in numbers.tolist()],
                value: np.arange(rows),
            }
        )

    return side("mine"), side("theirs").slice(0, max(1, rows // 8))


def test_pieces_within_a_budget_give_the_same(tmp_path: Path) -> None:
    left, right = _sides(20_000)
    wanted = dovetail.asof(left, right, "t", by="k")
    budget = 3 * right.nbytes + left.nbytes
    assert dovetail.asof(left, right, "t", by="k", memory=budget).equals(wanted)
    pq.write_table(left, tmp_path / "left.parquet", row_group_size=1000)
    found = dovetail.asof(tmp_path / "left.parquet", right, "t", by="k", memory=budget)
    assert found.drop(["c", "c_right"]).equals(wanted.drop(["c", "c_right"]))


def test_a_right_side_that_does_not_fit_is_refused() -> None:
    left, right = _sides(20_000)
    with pytest.raises(dovetail.DovetailError, match="the right side of a join with the best partners is kept"):
        dovetail.asof(right, left, "t", memory=200_000)


def test_readers_limits_and_suffixes() -> None:
    left, right = _sides(3000)
    wanted = dovetail.nearest(left, right, "t", k=2, suffix="_near")
    assert "s_near" in wanted.column_names
    reader = dovetail.nearest(left, right, "t", k=2, suffix="_near", to="reader")
    assert reader.read_all().equals(wanted)
    assert dovetail.nearest(left, right, "t", k=2, suffix="_near", limit=7).equals(wanted.slice(0, 7))
    assert dovetail.asof(left, right, "t", limit=0).num_rows == 0


@pytest.mark.parametrize("how", ["left", "inner"])
def test_any_number_of_threads_gives_the_same_rows(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.kernels.as_of.FEW_ROWS", 500)
    monkeypatch.setattr("dovetail.kernels.nearest_points.FEW_ROWS", 500)
    left, right = _sides(20_000)
    on, order = "l.t >= r.t AND l.b = r.b", ["abs(l.t - r.t)", "r.theirs"]
    for call in (
        lambda threads: dovetail.asof(left, right, "t", how, by="s", direction="nearest", threads=threads),
        lambda threads: dovetail.asof(left, right, "t", how, direction="forward", exact=False, threads=threads),
        lambda threads: dovetail.nearest(left, right, "t", how, by="c", k=3, threads=threads),
        lambda threads: dovetail.join(left.slice(0, 500), right, on, how, top=2, order_by=order, threads=threads),
    ):
        one, three = call(1), call(3)
        assert one.equals(three)


def test_nulls_beside_rows_without_a_partner() -> None:
    """Every kind of column: fixed width, bits, strings, dictionaries, lists."""
    left, right = _sides(6000)
    found = dovetail.asof(left, right, "t", by="k", tolerance=500)
    rows = found["theirs"].to_pylist()
    theirs = {row["theirs"]: row for row in right.to_pylist()}
    assert None in rows
    for name in ("t", "k", "s", "b", "c", "d"):
        wanted = [None if row is None else theirs[row][name] for row in rows]
        assert found[f"{name}_right"].to_pylist() == wanted, name
    assert found["mine"].to_pylist() == list(range(6000))


def test_data_frames_come_back_as_they_are() -> None:
    left = pd.DataFrame({"t": pd.to_datetime(["2024-01-02", "2024-01-01"]), "kind": pd.Categorical(["x", "y"])})
    right = pd.DataFrame({"t": pd.to_datetime(["2024-01-01"]), "v": pd.Categorical(["z"])})
    found = left.dovetail.asof(right, "t")
    assert found["kind"].dtype == "category"
    assert found["v"].tolist() == ["z", "z"]
    near: Any = pl.from_pandas(left[["t"]]).dovetail.nearest(pl.from_pandas(right[["t"]]), "t", within="12h")
    assert isinstance(near, pl.DataFrame)
    assert near["t_right"].null_count() == 1


def test_order_and_ties_need_top() -> None:
    rows = pa.table({"x": [1]})
    for options in ({"order_by": "r.x"}, {"ties": "all"}):
        with pytest.raises(dovetail.DovetailError, match="says which partners top= keeps"):
            dovetail.join(rows, rows, "l.x = r.x", **options)
    with pytest.raises(dovetail.DovetailError, match="ties='all' needs order_by="):
        dovetail.join(rows, rows, "l.x = r.x", top=1, ties="all")
    with pytest.raises(dovetail.DovetailError, match="reads no column"):
        dovetail.join(rows, rows, "l.x = r.x", top=1, order_by="1")
    with pytest.raises(dovetail.DovetailError, match="algorithm= is for joins with all partners"):
        dovetail.join(rows, rows, "l.x = r.x", top=1, algorithm="shj")


@pytest.mark.parametrize(
    ("options", "kernel"),
    [
        ({"on": "t", "of": "asof"}, "as_of"),
        ({"on": "l.k = r.k AND l.t > r.t", "top": 1, "order_by": "r.t DESC"}, "as_of"),
        ({"on": "l.k = r.k", "top": 1, "order_by": "abs(l.t - r.t)"}, "as_of"),
        ({"on": ["t", "mine"], "of": "nearest"}, "points"),
        ({"on": "t", "of": "nearest", "k": 2}, "points"),
        ({"on": ("t", "k"), "of": "nearest"}, "intervals"),
        ({"on": "l.t < r.t AND l.k > r.k", "top": 1}, "extremes"),
        ({"on": "l.t < r.t OR l.k > r.k", "top": 1, "order_by": "abs(l.t - r.t)"}, "lists"),
    ],
)
def test_explain_names_what_runs(options: dict[str, Any], kernel: str) -> None:
    left, _ = _sides(20)
    plan = dovetail.explain(left, left, **options)
    assert plan.operator.name == kernel
    assert "keeps" in str(plan)
