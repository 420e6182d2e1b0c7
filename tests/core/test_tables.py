import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import dovetail
from dovetail.core.tables import arrow_table, check_output, dataset_of, plain_schema
from dovetail.errors import InputError
from dovetail.operators.registry import operator_names


def test_views_and_run_ends_are_undone() -> None:
    inner = pa.struct([("s", pa.string_view())])
    table = pa.table(
        {
            "s": pa.array(["a", None], pa.string_view()),
            "b": pa.array([b"a", None], pa.binary_view()),
            "l": pa.array([[{"s": "x"}], None], pa.list_(inner)),
            "r": pc.run_end_encode(pa.array([1, 1])),
        }
    )
    plain = arrow_table(table)
    assert plain.to_pylist() == table.to_pylist()
    assert plain.schema.types[:2] == [pa.large_string(), pa.large_binary()]
    assert plain.schema.field("l").type == pa.list_(pa.struct([("s", pa.large_string())]))
    assert plain.schema.field("r").type == pa.int64()


def test_list_views_become_lists() -> None:
    """With values under a null and in a slice, which Arrow's own cast gets wrong."""
    inner = pa.struct({"n": pa.null(), "v": pa.large_list_view(pa.string_view())})
    values = [{"n": None, "v": ["a"]}, {"n": None, "v": None}, None, {"n": None, "v": ["b", None]}]
    lists = pa.array([[1], None, [2, 3], []], pa.list_view(pa.int32()))
    table = pa.table({"v": lists, "s": pa.array(values, inner)}).slice(1)
    plain = arrow_table(table)
    assert plain.to_pylist() == table.to_pylist()
    assert plain.schema.field("v").type == pa.list_(pa.int32())
    assert plain.schema.field("s").type.field("v").type == pa.large_list(pa.large_string())
    plain.validate(full=True)


DENSE = pa.UnionArray.from_dense(
    pa.array([0, 1, 0, 1], pa.int8()),
    pa.array([0, 0, 1, 1], pa.int32()),
    [pa.array([1, None]), pa.array(["x", "y"], pa.string_view())],
)
SPARSE = pa.UnionArray.from_sparse(
    pa.array([0, 1, 0, 1], pa.int8()), [pa.array([1, 2, 3, None]), pa.array(["w", "x", "y", "z"], pa.string_view())]
)
WORDS = pa.array(["a", None, "b" * 20, "c"], pa.string_view())
ANYTHING: dict[str, pa.Array] = {
    "dense": DENSE,
    "sparse": SPARSE,
    "views": WORDS,
    "bytes": pa.array([b"a", None, b"b" * 20, b""], pa.binary_view()),
    "map": pa.array([[("a", "b")], [], None, [("c", None)]], pa.map_(pa.string_view(), pa.string_view())),
    "map of unions": pa.MapArray.from_arrays([0, 1, 3, 3, 4], pa.array(list("abcd"), pa.string_view()), DENSE),
    "list": pa.array([["a"], [], None, ["b", None]], pa.list_(pa.string_view())),
    "large list": pa.array([["a"], [], None, ["b", None]], pa.large_list(pa.string_view())),
    "list of unions": pa.ListArray.from_arrays(pa.array([0, 1, None, 3, 4]), DENSE),
    "fixed list": pa.array([["a", "b"], None, ["c", None], ["d", "e"]], pa.list_(pa.string_view(), 2)),
    "list view": pa.array([["a"], [], None, ["b", None]], pa.list_view(pa.string_view())),
    "large list view": pa.array([["a"], [], None, ["b", None]], pa.large_list_view(pa.string_view())),
    "struct": pa.StructArray.from_arrays([DENSE, WORDS], ["u", "s"], mask=pa.array([False, True, False, False])),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["a", "b"], pa.string_view())),
    "dictionary of halffloats": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 0]), pa.array([np.float16(0.5), np.float16(2)])
    ),
    "dictionary of lists": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array([["a"], []])),
    "run ends": pc.run_end_encode(pa.array([1, 1, 2, 3])),
    "list of run ends": pa.ListArray.from_arrays([0, 1, 1, 2, 4], pc.run_end_encode(pa.array(["a", "a", "b", "b"]))),
    "extension": pa.ExtensionArray.from_storage(pa.opaque(pa.string_view(), "text", "somebody"), WORDS),
    "uuid": pa.array([bytes([i] * 16) for i in range(4)], pa.uuid()),
    "half": pa.array([np.float16(1), None, np.float16("nan"), np.float16(2)], pa.float16()),
    "null": pa.nulls(4),
    "long decimal": pa.array([1, None, 2, 3], pa.decimal256(70, 2)),
    "interval": pa.array([(1, 2, 3), None, (0, 0, 0), (1, 1, 1)], pa.month_day_nano_interval()),
}


@pytest.mark.parametrize("name", ANYTHING)
def test_arrays_of_any_type_keep_their_values(name: str) -> None:
    array = ANYTHING[name]
    for some in (array, array.slice(1), array.slice(1, 2), array.slice(4)):
        table = arrow_table(pa.table({"a": pa.chunked_array([some, array])}))
        table.validate(full=True)
        assert repr(table["a"].to_pylist()) == repr([*some.to_pylist(), *array.to_pylist()])
        assert table.schema == plain_schema(pa.schema({"a": array.type}))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ANYTHING)
def test_columns_of_any_type_go_through_joins(name: str) -> None:
    values = ANYTHING[name]
    array = pa.concat_arrays([values] * 10)
    keys = pa.array([i % 3 if i % 7 else None for i in range(40)])
    table = pa.table({"i": pa.array(range(40)), "k": keys, "a": array})
    table = pa.concat_tables([table.slice(0, 13), table.slice(13)])
    expected = array.to_pylist()

    def check(found: pa.Table, *ends: str) -> None:
        for end in ends:
            rows = found[f"i{end}"].to_pylist()
            assert repr(found[f"a{end}"].to_pylist()) == repr([None if i is None else expected[i] for i in rows])

    for on in ("l.k = r.k AND l.i > r.i", "abs(l.i - r.i) <= 1", "l.i < r.i AND l.k > r.k", "l.k = 0 OR r.i = 5"):
        check(dovetail.join(table, table, on, "full"), "", "_right")
        check(dovetail.join(table, table.slice(0, 0), on, "full"), "", "_right")
    check(dovetail.join(table, table, ["k"], "left_anti"), "")
    for algorithm in ("pmj", "xjoin", "diner", "shj"):
        check(dovetail.join(table, table, ["k"], algorithm=algorithm), "", "_right")
    for algorithm in ("auto", *operator_names(3)):
        several = {"x": table, "y": table, "z": table}
        triples = dovetail.multijoin(several, "x.i = y.i AND y.i = z.i", algorithm=algorithm)
        assert repr(triples["y_a"].to_pylist()) == repr([expected[i] for i in triples["y_i"].to_pylist()])
        assert triples.num_rows == 40


def test_a_polars_join_keeps_nested_columns() -> None:
    frame = pl.DataFrame({"k": ["a", "b"], "v": [["x", "yy"], []]})
    joined = dovetail.join(frame, frame, ["k"])
    assert sorted(joined.to_pylist(), key=str) == [
        {"k": "a", "v": ["x", "yy"], "v_right": ["x", "yy"]},
        {"k": "b", "v": [], "v_right": []},
    ]


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(InputError, match="cannot join a value of type list"):
        arrow_table([1, 2])


@pytest.mark.parametrize(
    "column",
    [
        pl.Series("a", [1, 2]),
        pd.Series([1, 2], name="a"),
        np.array([1, 2]),
        pa.array([1, 2]),
        pa.chunked_array([[1, 2]]),
    ],
    ids=lambda column: f"{type(column).__module__}.{type(column).__name__}",
)
def test_a_column_is_no_table(column: Any) -> None:
    with pytest.raises(InputError, match=r"it is a column, not a table\. Give series\.to_frame\(\)"):
        dovetail.join(column, pa.table({"a": [1]}), ["a"])


OURS = [
    "part-0.parquet",
    "part-00000-5f1c-c000.snappy.parquet",
    ".part-00000-5f1c.parquet.crc",
    "_SUCCESS",
    ".part-0.tmp",
]
FOREIGN = [
    "notes.txt",
    "orders.parquet",
    "part-00000-1b.csv",
    ".bashrc",
    "src/part-0.parquet",
    "part-1.parquet/notes.txt",
]


def fill(directory: Path, names: list[str]) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)


def test_a_result_is_overwritten_only_where_asked_for(tmp_path: Path) -> None:
    check_output(tmp_path / "new" / "one", overwrite=False)
    fill(tmp_path, OURS[:1])
    with pytest.raises(InputError, match="is not empty"):
        check_output(tmp_path, overwrite=False)
    fill(tmp_path, OURS)
    (tmp_path / "new" / "one").rmdir()
    (tmp_path / "new").rmdir()
    check_output(tmp_path, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(OURS)  # nothing is removed before the join


@pytest.mark.parametrize("name", FOREIGN)
def test_other_files_than_results_are_not_overwritten(name: str, tmp_path: Path) -> None:
    fill(tmp_path, [*OURS, name])
    with pytest.raises(InputError, match=rf"not results of a join: {Path(name).parts[0]}\."):
        check_output(tmp_path, overwrite=True)
    assert (tmp_path / name).read_text() == name


@pytest.mark.one_in(2)
@pytest.mark.spark
def test_csv_is_read_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    """An empty field is null, with quotes or without; "NA" and "null" are text."""
    path = tmp_path / "rows.csv"
    path.write_text('id,code,x,flag\n1,a,1.5,true\n2,,NaN,\n3,"",2.5,false\n4,NA,,true\n5,null,3.0,false\n')
    theirs = spark.read.options(header="true", inferSchema="true").csv(str(path)).orderBy("id")
    expected = [tuple(row) for row in theirs.collect()]
    found = [tuple(row.values()) for row in dataset_of(path).to_table().to_pylist()]
    assert [row[1] for row in found] == ["a", None, None, "NA", "null"]
    assert math.isnan(found[1][2])
    assert repr(found) == repr(expected)
