from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dovetail
from dovetail.errors import BudgetError, ConditionError, DovetailError, InputError, PlanError

LEFT = {"k": [1, 2, 2, None], "v": ["a", "b", "c", "d"]}
RIGHT = {"k": [2, 3, 2], "w": [1.0, 2.0, 3.0]}
EXPECTED = Counter([(2, "b", 2, 1.0), (2, "b", 2, 3.0), (2, "c", 2, 1.0), (2, "c", 2, 3.0)])


def rows(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("kind", [pa.table, pd.DataFrame, pl.DataFrame])
def test_tables_of_any_library_give_an_arrow_table(kind: type) -> None:
    joined = dovetail.join(kind(LEFT), kind(RIGHT), "l.k = r.k")
    assert isinstance(joined, pa.Table)
    assert joined.column_names == ["k", "v", "k_right", "w"]
    assert rows(joined) == EXPECTED


def test_count_agrees_with_join() -> None:
    left, right = pa.table(LEFT), pa.table(RIGHT)
    for on in ("l.k = r.k", "l.k < r.k", "l.k < r.k OR l.v = 'a'"):
        assert dovetail.count(left, right, on) == dovetail.join(left, right, on).num_rows


def test_names_that_clash_get_the_suffix() -> None:
    named = dovetail.join(pa.table(LEFT), pa.table(RIGHT), "l.k = r.k", suffix="_r")
    assert named.column_names == ["k", "v", "k_r", "w"]
    clash = pa.table({"k": [1], "k_right": [1]})
    with pytest.raises(InputError, match="two columns called 'k_right'"):
        dovetail.join(clash, pa.table({"k": [1]}), "l.k = r.k")
    assert dovetail.join(clash, pa.table({"k": [1]}), "k").column_names == ["k", "k_right"]


def test_an_empty_result_has_the_right_schema() -> None:
    joined = dovetail.join(pa.table(LEFT).slice(0, 0), pa.table(RIGHT), ["k"])
    assert joined.num_rows == 0
    assert joined.schema.field("w").type == pa.float64()


def test_a_join_larger_than_memory_spills() -> None:
    left = pa.table({"x": np.arange(3000), "pad": ["x" * 100] * 3000})
    right = pa.table({"y": np.arange(0, 30000, 10)})
    joined = dovetail.join(left, right, "l.x >= r.y", memory="200KB", algorithm="nested_loop")
    assert joined.num_rows == sum(x // 10 + 1 for x in range(3000))


def test_progressive_results_arrive_in_steps() -> None:
    left, right = pa.table({"k": np.arange(20_000)}), pa.table({"k": np.arange(20_000)[::-1]})
    steps = list(dovetail.progressive(left, right, "l.k = r.k"))
    assert len(steps) > 2
    assert [step.results for step in steps] == np.cumsum([step.batch.num_rows for step in steps]).tolist()
    assert steps[-1].results == 20_000
    assert {step.phase for step in steps} == {"arriving"}
    first = steps[0].estimate
    assert first is None or first.low <= 20_000 <= first.high


def test_a_reader_is_read_as_the_join_goes_on() -> None:
    read = []

    def batches() -> object:
        for i in range(10):
            read.append(i)
            yield pa.record_batch({"k": np.full(5000, i)})

    reader = pa.RecordBatchReader.from_batches(pa.schema([("k", pa.int64())]), batches())
    steps = dovetail.progressive(reader, pa.table({"k": list(range(10))}), ["k"], memory="1MB")
    assert not read
    next(steps)
    assert len(read) < 10  # waiting rows have a small part of the memory
    assert sum(step.batch.num_rows for step in steps) < 50_000


def test_leaving_a_progressive_join_frees_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table = pa.table({"k": np.arange(5000), "pad": ["x" * 50] * 5000})
    steps = dovetail.progressive(table, table, "l.k <= r.k", memory="100KB", algorithm="nested_loop")
    for _ in range(30):
        next(steps)
    assert list(tmp_path.iterdir())
    steps.close()  # type: ignore[attr-defined]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda lf, r: dovetail.join(lf, r, "l.kk = r.k"), ConditionError, "l.kk: no such column; did you mean l.k?"),
        (lambda lf, r: dovetail.join(lf, r, "l.v < r.w"), ConditionError, r"l.v \(string\) cannot be compared"),
        (lambda lf, r: dovetail.join(lf, r, "l.k = "), ConditionError, "cannot read the condition"),
        (lambda lf, r: dovetail.join(lf, r, "l.k"), ConditionError, "is not a condition"),
        (lambda lf, r: dovetail.join(lf, r, "soundex(l.v) = 'x'"), ConditionError, "soundex.*by Spark only"),
        (lambda lf, r: dovetail.join(lf, r, ["k"], how="sideways"), InputError, "how must be one of"),
        (lambda lf, r: dovetail.join(lf, r, ["k"], memory="lots"), InputError, "memory must be a number of bytes"),
        (lambda lf, r: dovetail.join(lf, r, ["k"], memory="1KB"), BudgetError, "Give 65,536 bytes or more"),
        (lambda lf, r: dovetail.join(lf, r, ["k"], algorithm="magic"), InputError, "no algorithm is called 'magic'"),
        (lambda lf, r: dovetail.join(lf, r, ["k"], algorithm="hash"), InputError, "There are: auto, diag, adaptive, "),
        (lambda lf, r: dovetail.join(lf, r, ["k"], algorithm="dinner"), InputError, "Did you mean 'diner'?"),
        (
            lambda lf, r: dovetail.join(lf, r, ["k"], window=dovetail.window(rows=5)),
            InputError,
            "window= is for two streams; it means nothing for tables in process.*algorithm='spo'",
        ),
        (lambda lf, r: dovetail.join(lf, r, "l.k < r.k", algorithm="shj"), PlanError, "needs at least one equality"),
        (lambda lf, r: dovetail.join(lf, r, ["k"], cells=4), InputError, "cells= is for DataFrames"),
        (lambda lf, r: dovetail.join(lf, 7, ["k"]), InputError, "cannot join a value of type int"),
    ],
)
def test_errors_come_before_any_work(call: object, error: type[DovetailError], message: str) -> None:
    with pytest.raises(error, match=message):
        call(pa.table(LEFT), pa.table(RIGHT))  # type: ignore[operator]


def test_explain_says_what_and_why() -> None:
    plan = dovetail.explain(pa.table(LEFT), pa.table(RIGHT), "l.k = r.k AND r.w > 1 AND l.v LIKE 'a%'")
    text = str(plan)
    assert "kernel     equality: one side in buckets by l.k = r.k, where the other looks its rows up" in text
    assert "filter     r.w > 1" in text
    assert "operator   shj" in str(dovetail.explain(pa.table(LEFT), pa.table(RIGHT), ["k"], algorithm="shj"))
    assert "every row is compared" in str(dovetail.explain(pa.table(LEFT), pa.table(RIGHT), "l.k * r.k > 3"))


def test_a_name_that_no_call_has_is_told_with_the_nearest() -> None:
    table = pa.table(LEFT)
    for call, near in (
        (lambda: dovetail.join(table, table, ["k"], treads=2), "threads"),
        (lambda: dovetail.aggregate(table, table, ["k"], {"n": "count(*)"}, thread=2), "threads"),
        (lambda: dovetail.count(table, table, ["k"], cell=2), "cells"),
        (lambda: dovetail.multijoin({"a": table, "b": table, "c": table}, "a.k = b.k", memry=2), "memory"),
        (lambda: dovetail.explain(table, table, ["k"], progresive=True), "progressive"),
        (lambda: dovetail.window(row=3), "rows"),
    ):
        with pytest.raises(TypeError, match=f"Did you mean '{near}'") as caught:
            call()
        assert isinstance(caught.value, InputError)  # and therefore a DovetailError


def test_plans_steps_and_joins_are_told_in_a_line() -> None:
    left, right = pa.table(LEFT), pa.table(RIGHT)
    assert repr(dovetail.explain(left, right, ["k"])).startswith("<JoinPlan inner join by equality on l.k = r.k")
    running = dovetail.progressive(left, right, ["k"])
    assert repr(running) == "<ProgressiveJoin by shj: iterate over it for steps>"
    assert "new results" in repr(next(running))
    *_, last = dovetail.progressive(left, right, ["k"], aggregate={"n": "count(*)"})
    assert ": n 4 after 4 results>" in repr(last)


def test_the_condition_of_several_inputs_may_come_second() -> None:
    several = {"a": pa.table(LEFT), "b": pa.table(RIGHT), "c": pa.table(RIGHT)}
    on = "a.k = b.k AND b.k = c.k"
    assert dovetail.count(several, on) == dovetail.count(several, on=on) == 8
    assert str(dovetail.explain(several, on)) == str(dovetail.explain(several, on=on))
    assert sum(step.batch.num_rows for step in dovetail.progressive(several, on)) == 8
    for call in (dovetail.count, dovetail.explain, dovetail.progressive):
        with pytest.raises(InputError, match="there is no condition"):
            call(several["a"], several["b"])
