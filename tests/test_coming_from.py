"""Argument names of other libraries: every line of docs/coming_from.md, and arguments without a counterpart."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dovetail
from dovetail.errors import ArgumentError, ConditionError, InputError, PlanError
from dovetail.habits import ARGUMENTS, JOIN_TYPES, METHODS

PAGE = (Path(__file__).parents[1] / "docs" / "coming_from.md").read_text(encoding="utf-8")
ORDERS = {"id": [1, 2, 3, 4], "day": [1, 1, 2, 2], "note": ["a", "b", "c", "d"], "x": [1.0, 2.0, 3.0, 4.0]}
PAYMENTS = {"id": [2, 3, 3, 5], "day": [1, 2, 3, 2], "note": ["x", "y", "z", "w"], "y": [2.5, 0.5, 3.5, 9.0]}
ZONES = {"order_id": [2, 3, 3, 5], "lo": [0.5, 2.5, 9.0, 1.5], "hi": [2.0, 3.0, 9.5, 3.5]}


def lines(heading: str) -> list[tuple[str, str]]:
    """The call in the other library and the equivalent Dovetail call, from each line of the page."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (text,) = [part for part in section if part.startswith(heading)]
    return re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", text, re.MULTILINE)


def rows(result: Any) -> tuple[list[str], Counter[tuple[Any, ...]]]:
    """Column names and rows, with nulls as None."""
    if isinstance(result, pd.DataFrame):
        names = [str(name) for name in result.columns]
        cells = zip(*(result[name].astype(object).where(result[name].notna(), None) for name in result), strict=True)
    else:
        table = result if isinstance(result, pa.Table) else result.to_arrow()
        names, cells = table.column_names, zip(*(column.to_pylist() for column in table.columns), strict=True)
    return names, Counter(tuple(cells))


@pytest.mark.parametrize(
    ("library", "known", "written"),
    [(library, *line) for library in ("pandas", "Polars") for line in lines(library)],
)
def test_a_line_gives_what_it_gave(library: str, known: str, written: str) -> None:
    kind = pd.DataFrame if library == "pandas" else pl.DataFrame
    names = {"left": kind(ORDERS), "right": kind(PAYMENTS), "zones": kind(ZONES), "dovetail": dovetail}
    names |= {"pd": pd, "pl": pl}
    found = eval(written, names)
    assert type(found) is kind
    assert rows(found) == rows(eval(known, names))


@pytest.mark.parametrize(("known", "written"), lines("DuckDB"))
def test_a_line_of_sql_gives_what_it_gave(known: str, written: str) -> None:
    names = {"left": pa.table(ORDERS), "right": pa.table(PAYMENTS), "zones": pa.table(ZONES), "dovetail": dovetail}
    database = duckdb.connect()
    for name, called in (("left", "orders"), ("right", "payments"), ("zones", "zones")):
        database.register(called, names[name])
    expected = database.execute(known).to_arrow_table()
    found = eval(written, names)
    assert rows(found)[1] == rows(expected)[1]
    assert len(found.column_names) == len(expected.column_names)


def test_the_page_has_lines_for_every_library() -> None:
    assert min(len(lines(library)) for library in ("pandas", "Polars", "Spark", "DuckDB")) >= 6


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_without_a_counterpart_say_what_to_write(name: str) -> None:
    for call in (dovetail.join, dovetail.progressive, dovetail.count, dovetail.explain):
        with pytest.raises(ArgumentError, match=re.escape(ARGUMENTS[name])):
            call(pa.table(ORDERS), pa.table(PAYMENTS), "id", **{name: True})


@pytest.mark.parametrize("how", sorted(set(JOIN_TYPES) - {"cross"}))
def test_join_types_without_a_counterpart_say_what_to_write(how: str) -> None:
    with pytest.raises(InputError, match=re.escape(JOIN_TYPES[how])):
        dovetail.join(pa.table(ORDERS), pa.table(PAYMENTS), "id", how)


L, R = pa.table(ORDERS), pa.table(PAYMENTS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "there is no condition: give on='id'"),
        ({"left_on": "id"}, "belong together"),
        ({"on": "id", "left_on": "id", "right_on": "id"}, "in place of on="),
        ({"left_on": ["id", "day"], "right_on": "id"}, "the same number of columns; got 2 and 1"),
        ({"left_on": pl.col("id"), "right_on": "id"}, "are names of columns"),
        ({"on": "id", "how": "cross"}, "takes no condition"),
        ({"on": "id", "suffixes": "ab"}, "suffixes= is a pair of texts"),
        ({"on": "id", "suffixes": (None, None)}, "two columns called 'day'"),
        ({"on": "id", "suffixes": ("_x", "_y"), "suffix": "_z"}, "give one of them"),
        ({"on": "id", "indicator": "y"}, "two columns called 'y'"),
        ({"on": "id", "validate": "1:n"}, "validate must be one of"),
        ({"on": "id", "validate": "1:1"}, "keys of the right input are not unique: r.id = 3 comes 2 times"),
        ({"on": "id", "memory": float("nan")}, "memory must be"),
        ({"on": "id", "memory": float("inf")}, "memory must be a number of bytes"),
    ],
)
def test_mistakes(options: dict[str, Any], words: str) -> None:
    with pytest.raises((InputError, ArgumentError), match=re.escape(words)):
        dovetail.join(L, R, **options)


def test_methods_of_other_libraries_say_what_to_write() -> None:
    for name, instead in METHODS.items():
        with pytest.raises(AttributeError, match=re.escape(f"dovetail has no method {name!r}. Write {instead}.")):
            getattr(pl.DataFrame().dovetail, name)
    assert not hasattr(pl.DataFrame().dovetail, "__wrapped__")


def test_mistakes_of_a_first_hour() -> None:
    when = pa.table({"when": [1], "day": [2]})
    for call, words in (
        (
            lambda: dovetail.join(when, R, "when < y"),
            "unexpected 'when': if it is a column, write l.when, r.when or `when`",
        ),
        (lambda: dovetail.join(L, R, pl.col("id") == 1, pl.col("x") > 1), "Conditions go in a list: on=[…, …]"),
        (lambda: dovetail.join(L, R, "id", hwo="left"), "Did you mean 'how'?"),
        (lambda: dovetail.join([{"id": 1}], R, "id"), "a list of dictionaries: give pa.Table.from_pylist(rows)"),
        (lambda: dovetail.join({"id": [1]}, {"id": [2]}, "id"), "a dictionary of lists is not a table"),
        (lambda: dovetail.aggregate(L, R, "id", {"n": "count(*)"}, groupby="x"), "Write by="),
        (lambda: dovetail.join(L, R, left_on=[pl.col("id")], right_on="id"), "names of columns; got Expr and 'id'"),
        (lambda: dovetail.sql("SELECT id FROM l JOIN r ON x < y", l=L, r=R), "id is ambiguous: write l.id"),
        (lambda: dovetail.sql("SELECT * FROM hits.csv h"), "Write the name of a file in quotes: 'hits.csv'"),
    ):
        with pytest.raises(dovetail.DovetailError, match=re.escape(words)):
            call()


def test_mistakes_in_conditions() -> None:
    with pytest.raises(PlanError, match="validate= is for joins on equalities"):
        dovetail.join(L, R, "l.day < r.day", validate="1:1")
    with pytest.raises(ConditionError, match="FloorDivide in the Polars expression"):
        dovetail.join(L, R, pl.col("day") // 2 == pl.col("y"))
    with pytest.raises(ConditionError, match="ends with '_right'"):
        dovetail.join(L, R, pl.col("nothing") == pl.col("y"))


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "left_semi", "left_anti"])
def test_a_shared_column_is_that_of_the_side_that_is_all_there(how: str) -> None:
    """Against the definition: a join that keeps both columns, which are then combined."""
    left = pa.table({"v": [1, 2, 3, 4], "k": pa.array([1, 2, 2, None], pa.int32())})
    right = pa.table({"k": pa.array([2, 3, None], pa.int64()), "v": [5, 6, 7]})
    both = dovetail.join(left, right, "l.k = r.k", how).to_pylist()
    expected = []
    for row in both:
        other = row.pop("k_right", None)
        expected.append({**row, "k": row["k"] if row["k"] is not None else other})
    found = dovetail.join(left, right, "k", how)
    assert Counter(map(str, found.to_pylist())) == Counter(map(str, expected))
    assert found.schema.field("k").type == {"right": pa.int64(), "full": pa.int64()}.get(how, pa.int32())
    steps = [step.batch for step in dovetail.progressive(left, right, ["k"], how)]
    assert Counter(map(str, pa.Table.from_batches(steps).to_pylist())) == Counter(map(str, expected))
    reader = dovetail.join(left, right, left_on="k", right_on="k", how=how, to="reader")
    assert reader.schema == found.schema
    assert Counter(map(str, reader.read_all().to_pylist())) == Counter(map(str, expected))


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b", None]).dictionary_encode(),
        pa.array([[1], [2], None]),
        pa.array([{"x": 1}, {"x": 2}, None]),
        pa.array([b"a", b"b", None], pa.large_binary()),
        pa.array([True, False, None]),
        pa.array([1, 2, None], pa.decimal128(5, 2)),
        pa.array([None, None, None]),
    ],
    ids=lambda values: str(values.type),
)
def test_shared_columns_of_any_type_after_a_full_join(values: pa.Array) -> None:
    left, right = pa.table({"k": values.slice(0, 1)}), pa.table({"k": values.slice(1)})
    found = dovetail.join(left, right, "k", "full", indicator=True)
    assert found.schema.field("k").type == values.type
    assert Counter(map(str, found["k"].to_pylist())) == Counter(map(str, values.to_pylist()))
    assert Counter(found["_merge"].to_pylist()) == {"left_only": 1, "right_only": 2}


def test_an_indicator_of_files_and_results_of_any_type(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(R, tmp_path / "r.parquet")
    found = dovetail.join(L, tmp_path / "r.parquet", "l.x < r.y AND l.id = r.id", "full", indicator="from")
    assert found.schema.field("from").type == pa.dictionary(pa.int8(), pa.string())
    assert Counter(found["from"].to_pylist()) == {"both": 2, "left_only": 2, "right_only": 2}
    assert dovetail.join(L, R, "id", "semi", indicator=True)["_merge"].to_pylist() == ["both"] * 2
    assert dovetail.join(L, R, "id", "anti", indicator=True)["_merge"].to_pylist() == ["left_only"] * 2


def test_unique_keys() -> None:
    assert dovetail.join(L, R, "id", validate="1:m").num_rows == 3
    assert dovetail.join(L, R, "l.id = r.id AND r.day < 3", validate="one_to_one").num_rows == 2
    nulls = pa.table({"id": pa.array([None, None, 2], pa.int64())})
    assert dovetail.join(nulls, nulls, "id", validate="1:1").num_rows == 1  # nulls match nothing
    with pytest.raises(InputError, match=r"keys of the left input are not unique: l.day = 1 comes 2 times"):
        dovetail.join(L, R, "day", validate="1:1")
    assert dovetail.join(L, R, ["id", "day"], validate="1:1").num_rows == 2


def test_memory_as_a_float() -> None:
    assert dovetail.join(L, R, "id", memory=1e6).num_rows == 3
    assert "1,000,000 bytes" in str(dovetail.explain(L, R, "id", memory=1e6))


def test_conditions_of_polars() -> None:
    left, right = pl.DataFrame(ORDERS), pl.DataFrame(PAYMENTS)
    for predicates in (
        [pl.col("x") <= pl.col("y")],
        [pl.col("id") == pl.col("id_right"), pl.col("x") + 1 > pl.col("y") * 2],
        [pl.col("y").is_between(pl.col("x"), pl.col("x") + 1, closed="left")],
        [(pl.col("x") < pl.col("y")) & ~(pl.col("note_right") == "w") & pl.col("id").is_in([1, 2])],
        [pl.col("x") < pl.col("y"), pl.col("note").str.to_uppercase() != pl.col("note_right")],
        [(pl.col("x") - pl.col("y")).abs() < 1.5, -pl.col("x") < pl.col("y").cast(pl.Int64)],
    ):
        found = left.dovetail.join(right, predicates)
        assert found.columns == left.join_where(right, *predicates).columns
        assert rows(found)[1] == rows(left.join_where(right, *predicates))[1]
    assert (
        left.dovetail.count(right, pl.col("x") <= pl.col("y"))
        == left.join_where(right, pl.col("x") <= pl.col("y")).height
    )
    other = left.dovetail.join(right, pl.col("id") == pl.col("id_r"), suffix="_r")
    assert other.columns == ["id", "day", "note", "x", "id_r", "day_r", "note_r", "y"]
