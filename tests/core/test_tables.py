from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dovetail
from dovetail.core.tables import arrow_table, check_output
from dovetail.errors import InputError


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
    """With values behind a null and in a slice, where Arrow's own cast goes wrong."""
    inner = pa.struct({"n": pa.null(), "v": pa.large_list_view(pa.string_view())})
    values = [{"n": None, "v": ["a"]}, {"n": None, "v": None}, None, {"n": None, "v": ["b", None]}]
    lists = pa.array([[1], None, [2, 3], []], pa.list_view(pa.int32()))
    table = pa.table({"v": lists, "s": pa.array(values, inner)}).slice(1)
    plain = arrow_table(table)
    assert plain.to_pylist() == table.to_pylist()
    assert plain.schema.field("v").type == pa.list_(pa.int32())
    assert plain.schema.field("s").type.field("v").type == pa.large_list(pa.large_string())
    plain.validate(full=True)


def test_a_polars_join_keeps_nested_columns() -> None:
    frame = pl.DataFrame({"k": ["a", "b"], "v": [["x", "yy"], []]})
    joined = dovetail.join(frame, frame, ["k"])
    assert sorted(joined.to_pylist(), key=str) == [
        {"k": "a", "v": ["x", "yy"], "k_right": "a", "v_right": ["x", "yy"]},
        {"k": "b", "v": [], "k_right": "b", "v_right": []},
    ]


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(InputError, match=r"cannot join a builtins\.list"):
        arrow_table([1, 2])


OURS = [
    "part-0.parquet",
    "part-00000-5f1c-c000.snappy.parquet",
    ".part-00000-5f1c.parquet.crc",
    "_SUCCESS",
    ".part-0.tmp",
]
FOREIGN = ["notes.txt", "orders.parquet", "part-0.csv", ".bashrc", "src/part-0.parquet", "part-1.parquet/notes.txt"]


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
    with pytest.raises(InputError, match=rf"no result of a join: {Path(name).parts[0]}\."):
        check_output(tmp_path, overwrite=True)
    assert (tmp_path / name).read_text() == name
