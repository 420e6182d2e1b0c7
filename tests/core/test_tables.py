import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dovetail
from dovetail.core.tables import arrow_table
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
