"""`columns=` in process: the same columns as in the whole result, without reading others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.seed import seeded

import dovetail
from dovetail.columns.taking import Gatherer
from dovetail.errors import InputError
from dovetail.sources.parquet_files import ParquetSource

LEFT = pa.table({"id": [1, 2, 3, 4], "x": [1.0, 2.0, 3.0, None], "p": ["a", "b", "c", "d"], "k": [1, 1, 2, 2]})
RIGHT = pa.table({"id": [7, 8, 9], "y": [1.5, 2.5, None], "q": ["u", "v", "w"], "k": [1, 2, 2]})
HOW = ("inner", "left", "right", "full", "left_semi", "left_anti")


def rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "options",
    [{}, {"algorithm": "pmj", "memory": "100KB"}, {"memory": "100KB"}, {"limit": 100}],
    ids=["kernel", "operator", "budget", "limit"],
)
def test_they_are_those_of_the_whole_result(how: str, options: dict[str, Any]) -> None:
    for on in ("l.x < r.y", "l.k = r.k AND l.x <= r.y", "l.id < r.id AND l.p < 'c'"):
        whole = dovetail.join(LEFT, RIGHT, on, how, **options)
        for _ in range(3):
            names = whole.column_names
            chosen = seeded(how, on).sample(names, 2)
            found = dovetail.join(LEFT, RIGHT, on, how, columns=chosen, **options)
            assert found.schema == whole.select(chosen).schema
            assert rows(found) == rows(whole.select(chosen))


@pytest.mark.parametrize("how", HOW)
def test_shared_columns_suffixes_and_the_indicator(how: str) -> None:
    options: dict[str, Any] = {"on": "k", "how": how, "suffixes": ("_a", "_b"), "indicator": True}
    whole = dovetail.join(LEFT, RIGHT, **options)
    for chosen in (["_merge", "k"], ["p", "k"], [whole.column_names[-2], "_merge"]):
        found = dovetail.join(LEFT, RIGHT, columns=chosen, **options)
        assert found.column_names == chosen
        assert rows(found) == rows(whole.select(chosen))


def test_a_clashing_column_keeps_its_suffix() -> None:
    assert dovetail.join(LEFT, RIGHT, "l.x < r.y", columns=["id_right"])["id_right"].to_pylist() == [7, 8, 8]
    with pytest.raises(InputError, match=r"columns= asks for 'y_right', which the result does not have. It has: id, x"):
        dovetail.join(LEFT, RIGHT, "l.x < r.y", columns=["y_right"])


def test_readers_and_dataframes_of_other_libraries() -> None:
    reader = dovetail.join(LEFT, RIGHT, "l.x < r.y", columns=["q", "p"], to="reader")
    assert reader.schema.names == ["q", "p"]
    assert reader.read_all().num_rows == 3
    pandas = LEFT.to_pandas().astype({"id": "Int8"}).dovetail.join(RIGHT.to_pandas(), "l.x < r.y", columns=["q", "id"])
    assert list(pandas.columns) == ["q", "id"]
    assert pandas["id"].dtype == pd.Int8Dtype()
    polars = pl.from_arrow(LEFT).dovetail.join(pl.from_arrow(RIGHT), "l.x < r.y", columns=["q", "id"])
    assert polars.columns == ["q", "id"]


def test_the_best_partners() -> None:
    best: dict[str, Any] = {"on": "l.x < r.y", "how": "left", "top": 1, "order_by": "r.y - l.x"}
    whole = dovetail.join(LEFT, RIGHT, **best)
    assert dovetail.join(LEFT, RIGHT, columns=["q", "p"], **best).to_pylist() == whole.select(["q", "p"]).to_pylist()


def test_other_columns_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, table in (("l", LEFT), ("r", RIGHT)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    read: list[set[str]] = []
    gathered: list[list[str]] = []
    places, made = ParquetSource.places, Gatherer.__init__

    def seen_places(self: Any, *arguments: Any, **options: Any) -> Any:
        read.append(set(self.schema.names))
        return places(self, *arguments, **options)

    def seen_batch(self: Any, batch: pa.RecordBatch, *arguments: Any, **options: Any) -> None:
        gathered.append(batch.schema.names)
        made(self, batch, *arguments, **options)

    monkeypatch.setattr(ParquetSource, "places", seen_places)
    monkeypatch.setattr(Gatherer, "__init__", seen_batch)
    files = (str(tmp_path / "l.parquet"), str(tmp_path / "r.parquet"))
    assert dovetail.join(*files, "l.x < r.y", columns=["q"]).num_rows == 3
    assert set().union(*read) == {"x", "y", "q"}
    assert {name for names in gathered for name in names} == {"q"}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id", r"columns must be a list of names, such as \['id'\]"),
        (["id", "id"], "columns= names id more than once"),
        ([], "names no column. To count the rows, use dovetail.count"),
    ],
)
def test_mistakes(columns: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        dovetail.join(LEFT, RIGHT, "l.x < r.y", columns=columns)


def test_explain_shows_what_is_left_out() -> None:
    plan = str(dovetail.explain(LEFT, RIGHT, "l.x < r.y", columns=["p", "q"]))
    assert "columns    2 of 8 are in the result; l.x, r.y read for the condition" in plan
