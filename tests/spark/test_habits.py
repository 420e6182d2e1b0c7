"""Argument names of other libraries on Spark: the lines of docs/coming_from.md, shared columns, indicators, aliases."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from tests.test_coming_from import ORDERS, PAYMENTS, ZONES, lines

import dovetail
from dovetail.errors import ConditionError, InputError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def frames(spark: Any) -> dict[str, Any]:
    tables = {"left": ORDERS, "right": PAYMENTS, "zones": ZONES}
    return {name: spark.createDataFrame(pa.table(columns)) for name, columns in tables.items()}


def rows(frame: Any) -> Counter[str]:
    return Counter(str(sorted(row.asDict().items())) for row in frame.collect())


def test_lines_give_what_they_gave(frames: dict[str, Any]) -> None:
    for known, written in lines("Spark"):
        names = {**frames, "F": F, "dovetail": dovetail}
        found, expected = eval(written, names), eval(known, names)
        assert sorted(found.columns) == sorted(expected.columns), written
        assert rows(found) == rows(expected), written


@pytest.mark.parametrize("cells", [None, 2])
def test_as_tables_are_joined(frames: dict[str, Any], cells: int | None) -> None:
    """The same rows and columns as in process, with Spark's own join and in cells."""
    left, right = pa.table(ORDERS), pa.table(PAYMENTS)
    for how, options in (
        ("full", {"on": "id", "suffixes": ("_x", "_y"), "indicator": True}),
        ("right", {"on": ["id", "day"], "indicator": "origin"}),
        ("left", {"left_on": "id", "right_on": "id", "indicator": True}),
        ("left_anti", {"on": "id", "indicator": True}),
    ):
        found = dovetail.join(frames["left"], frames["right"], how=how, cells=cells, **options)
        expected = dovetail.join(left, right, how=how, **options)
        assert found.columns == expected.column_names
        assert Counter(tuple(row) for row in found.collect()) == Counter(
            zip(*(column.to_pylist() for column in expected.columns), strict=True)
        )


def test_keys_that_are_not_unique(frames: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"keys of the right input are not unique: r.id = 3 comes 2 times"):
        dovetail.join(frames["left"], frames["right"], "id", validate="1:1")
    assert dovetail.join(frames["left"], frames["right"], "id", validate="1:m").count() == 3


def test_aliases_in_text(frames: dict[str, Any]) -> None:
    orders, zones = frames["left"].alias("t"), frames["zones"].alias("i")
    on = "t.x >= i.lo AND t.x < I.hi"
    expected = dovetail.join(pa.table(ORDERS), pa.table(ZONES), "l.x >= r.lo AND l.x < r.hi")
    assert dovetail.join(orders, zones, on).count() == expected.num_rows
    assert dovetail.count(orders, zones, on) == expected.num_rows
    assert dovetail.join(orders, zones, ["t.id = i.order_id", "l.x < r.hi"]).count() == 1
    with pytest.raises(ConditionError, match="neither DataFrame has the alias q"):
        dovetail.join(orders, zones, "q.x < i.lo")


def test_waves_and_files_have_shared_columns_once(frames: dict[str, Any], spark: Any, tmp_path: Path) -> None:
    steps = list(dovetail.progressive(frames["left"], frames["right"], "id", suffixes=("", "_r"), cells=2))
    assert steps[-1].batch.schema.names == ["id", "day", "note", "x", "day_r", "note_r", "y"]
    assert sum(step.batch.num_rows for step in steps) == 3
    ordered = list(dovetail.progressive(frames["left"], frames["right"], "id", order_by="l.x DESC"))
    found = pa.Table.from_batches([step.batch for step in ordered])
    assert (found["id"].to_pylist(), found.column_names[:2]) == ([3, 3, 2], ["id", "day"])
    for name, column in (("one", range(2000)), ("many", [n // 2 for n in range(4000)])):
        spark.createDataFrame(pa.table({"id": list(column), name: list(column)})).coalesce(1).write.parquet(
            str(tmp_path / name)
        )
    one, many = (spark.read.parquet(str(tmp_path / name)) for name in ("one", "many"))
    joined = dovetail.join(one, many, "id", algorithm="diag")
    assert dovetail.write(joined, tmp_path / "out").rows == joined.count() == 4000
    assert spark.read.parquet(str(tmp_path / "out")).columns == joined.columns == ["id", "one", "many"]
