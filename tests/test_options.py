"""The table of options: code and docs generated from it are current, and calls behave as it says."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tools.write_options import API, PAGE, page, written_api

import dovetail
from dovetail.errors import ArgumentError, InputError
from dovetail.options import CALLS, EVERYWHERE, OPTIONS, PLACES, Where, accepted_by, options_of
from dovetail.request import Request
from dovetail.sources import Retry

TABLE = pa.table({"k": [1, 2, 3]})
SEVERAL = {"a": TABLE, "b": TABLE, "c": TABLE}
ALONG = "a.k = b.k AND b.k = c.k"


def request(call: str, **options: Any) -> Request:
    arguments = {"left": TABLE, "right": TABLE, "on": ["k"], **options}
    return Request.read(call, arguments, tuple)


def test_what_is_written_from_the_table_is_current() -> None:
    assert written_api(API.read_text()) == API.read_text(), "run: python -m tools.write_options"
    assert page() == PAGE.read_text(), "run: python -m tools.write_options"


def test_rows_are_complete() -> None:
    for row in OPTIONS:
        assert row.text.endswith("."), row
        assert not row.where & row.ignored, row
        assert row.purpose or row.where | row.ignored == EVERYWHERE or row.instead, f"{row.name} does not say what for"
        for call in row.calls.split():
            assert call == "explain" or row.where & CALLS[call], f"{row.name} means nothing for {call}"
    assert set(PLACES) == set(Where)
    assert not {row.name for row in OPTIONS} & {*dir(Request), *Request.__dataclass_fields__}


def test_explain_takes_the_options_of_what_it_explains() -> None:
    explained = [name for call in ("join", "progressive", "asof", "nearest") for name in options_of(call)]
    assert set(options_of("explain")) == {*explained, "progressive", "of"}
    setting: dict[str, Any] = {"suffix": "_r", "threads": 2, "to": "reader", "limit": 3}
    assert dovetail.explain(TABLE, TABLE, ["k"], **setting).limit == 3
    early: dict[str, Any] = {"wait_ms": 5.0, "memory": "1MB", "progress": True, "workers": 2}
    assert (
        dovetail.explain(TABLE, TABLE, ["k"], progressive=True, **early).memory_bytes == 200_000
    )  # per cell, with four cells
    ordered = dovetail.explain(TABLE, TABLE, ["k"], progressive=True, order_by="l.k")
    assert str(ordered) == str(dovetail.explain(TABLE, TABLE, ["k"]))
    with pytest.raises(ArgumentError, match=r"dovetail.join has no argument 'workers'"):
        dovetail.explain(TABLE, TABLE, ["k"], workers=2)
    with pytest.raises(ArgumentError, match=r"dovetail.progressive has no argument 'state_dir'"):
        dovetail.explain(TABLE, TABLE, ["k"], progressive=True, state_dir="x")


@pytest.mark.parametrize("call", ["join", "progressive", "count", "aggregate"])
@pytest.mark.parametrize("where", PLACES, ids=lambda where: where.name)
def test_refusals_follow_from_the_table(call: str, where: Where) -> None:
    """An option is rejected if and only if its row does not list the place; the error says where it applies."""
    for name, row in accepted_by(call).items():
        named = {"algorithm": row.algorithm} if row.algorithm else {}
        given = Request(call, (TABLE, TABLE), ["k"], given={**named, name: "anything"})
        if where in row.where | row.ignored:
            given.refuse_outside(where)
            continue
        with pytest.raises(InputError, match=f"{name}=.*{row.purpose}.* nothing for .*Leave") as refused:
            given.refuse_outside(where)
        assert row.instead in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry": 3}, r"retry must be Retry, such as dovetail.sources.Retry\(tries=3\); got 3."),
        (
            {"retry": Retry(tries=3)},
            "retry= is for sources and files; it means nothing for progressive joins of tables",
        ),
        ({"wait_ms": -1}, "wait_ms must be a number, 0 or more; got -1"),
        ({"wait_ms": "soon"}, "wait_ms must be a number, 0 or more; got 'soon'"),
        ({"workers": 1.5}, "workers must be an integer, 1 or more; got 1.5"),
        ({"sample": "no"}, "sample must be True or False; got 'no'"),
        ({"work_dir": 7}, "work_dir must be a string; got 7"),
        ({"aggregate": ["count(*)"]}, r"aggregate must be Mapping\[str, str\]; got"),
        (
            {"share": 0.1, "one": "left"},
            "share= is for algorithm='diag', one= is for algorithm='diag'; they mean nothing ",
        ),
        ({"order_by": "l.k", "fan_in": 4}, "fan_in= is for named algorithms; it means nothing for results in order"),
    ],
)
def test_wrong_values_and_places_are_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dovetail.progressive(TABLE, TABLE, ["k"], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "list"}, "to must be one of table, reader; got 'list'"),
        ({"window": 5}, r"window must be Window, such as dovetail.window\(rows=1000\) or .*; got 5"),
        ({"end": 3}, "end must be a string .*, such as .*'available' if the available data is complete; got 3"),
        ({"trusted": "yes"}, "trusted must be True or False; got 'yes'"),
    ],
)
def test_wrong_values_of_a_join(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dovetail.join(TABLE, TABLE, ["k"], **options)


def test_what_asks_for_nothing_is_not_given() -> None:
    assert request("join", cells=None, sample=None, metrics="dovetail", progress=False).given == {}
    assert request("progressive", memory="256MB", workers=1).given == {}
    assert request("progressive", memory=None).given == {"memory": None}  # means no limit
    assert request("explain", memory="auto", progressive=True).memory == "256MB"
    assert request("explain", memory=None, progressive=True).memory is None
    assert request("join", limit=np.int64(0), threads=np.int32(1)).given == {"limit": 0, "threads": 1}
    with pytest.raises(AttributeError, match="no option called 'cels'"):
        _ = request("join").cels


def test_counts_and_aggregates_take_what_joins_on_spark_take() -> None:
    for call in (dovetail.count, lambda *rows, **options: dovetail.aggregate(*rows, {"n": "count(*)"}, **options)):
        with pytest.raises(InputError, match="state_dir= is for streams; it means nothing for tables in process"):
            call(TABLE, TABLE, ["k"], state_dir="x")
    with pytest.raises(
        InputError, match=r"algorithm= is for three and more DataFrames; .* three and more tables in process"
    ):
        dovetail.count(SEVERAL, ALONG, algorithm="pmj")
    with pytest.raises(InputError, match="fan_in= is for named algorithms"):
        dovetail.count(TABLE, TABLE, ["k"], fan_in=4)


def test_directories_may_be_paths(tmp_path: Path) -> None:
    given = {"left": 1, "right": 2, "on": "l.k = r.k", "state_dir": tmp_path}
    assert Request.read("join", given, lambda: ()).state_dir == str(tmp_path)
