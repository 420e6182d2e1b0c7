"""The operator chosen for a progressive join, which must be able to run it within its memory."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.effort import some

import dovetail
from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.errors import BudgetError, InputError, PlanError
from dovetail.operators.registry import operator_class
from dovetail.planning.planner import InputFacts, TableSize, plan_join

ROWS = 800
HOW = ("inner", "left", "right", "full", "left_semi", "left_anti")

CONDITIONS = {
    "equality": "l.k = r.k",
    "equality and inequality": "l.g = r.g AND l.x < r.x - 90",
    "one inequality": "l.x < r.x - 98",
    "two inequalities": "l.x < r.x - 50 AND l.y > r.y + 45",
    "three inequalities": "l.x < r.x - 50 AND l.y > r.y + 40 AND l.x + l.y < r.z",
    "not equal": "l.rare != r.rare",
    "band": "abs(l.x - r.x) <= 0.1",
    "two bands": "abs(l.x - r.x) <= 1 AND abs(l.y - r.y) < 2",
    "overlap": "l.x <= r.end AND l.end >= r.x",
    "rectangles": "l.x <= r.end AND l.end >= r.x AND l.y <= r.top AND l.top >= r.y",
    "distance": "sqrt(pow(l.x - r.x, 2) + pow(l.y - r.y, 2)) < 1",
    "text": "l.s = r.s AND l.x < r.x",
    "disjunction": "l.k = r.k + 1 OR l.x = r.y",
    "other": "l.k = r.k + 1 OR l.x + r.x = 3",
}
RARER = {
    "everything": "true",
    "nothing": "l.id = r.id AND false",
    "one side alone": "l.x < 3",
    "expression": "l.x + r.y < 7",
    "not equal and band": "l.rare != r.rare AND abs(l.x - r.x) <= 0.1",
    "not equal and inequality": "l.rare != r.rare AND l.x < r.x",
    "two not equal": "l.rare != r.rare AND l.g != r.g",
    "disjunction of equality and inequality": "l.k = r.k OR l.x < r.y - 98",
}
UNORDERED = ("not equal", "disjunction", "other")  # no operator that spills finds candidates for these


def table(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    x, y = rng.random(ROWS) * 100, rng.random(ROWS) * 100
    keys = rng.integers(0, ROWS, ROWS)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "k": pa.array(keys, mask=rng.random(ROWS) < 0.05),
            "g": rng.integers(0, 40, ROWS),
            "x": np.where(rng.random(ROWS) < 0.01, np.nan, x),
            "y": y,
            "z": x,
            "end": x + 0.1,
            "top": y + 9,
            "rare": np.where(rng.random(ROWS) < 0.001, 2, 1),
            "s": [f"a common beginning, then {key}" for key in keys],
        }
    )


LEFT, RIGHT = table(1), table(2)
SCHEMAS = (LEFT.schema, RIGHT.schema)
SMALL, LARGE = 70_000, 256_000_000
SIZE = TableSize(2 * ROWS, LEFT.nbytes + RIGHT.nbytes)


def ids(batches: Iterable[pa.RecordBatch]) -> Counter[tuple[int | None, ...]]:
    names = [name for name in ("id", "id_right") if batches and name in next(iter(batches)).schema.names]
    found: Counter[tuple[int | None, ...]] = Counter()
    for batch in batches:
        found.update(zip(*(batch[name].to_pylist() for name in names), strict=True))
    return found


def early(left: Any, right: Any, on: str, how: str = "inner", **options: Any) -> Counter[tuple[int | None, ...]]:
    return ids([step.batch for step in dovetail.progressive(left, right, on, how, **options)])


def chosen(on: str, how: str, memory_bytes: int | None, size: TableSize | None = None) -> str:
    facts = InputFacts("progressive", size=size)
    return plan_join(parse(on, *SCHEMAS), how, facts, memory_bytes=memory_bytes).operator.name


@pytest.mark.parametrize("name", CONDITIONS)
def test_what_auto_takes_as_rows_come(name: str) -> None:
    on = CONDITIONS[name]
    inner = {memory: chosen(on, "inner", memory) for memory in (SMALL, LARGE, None)}
    match name:
        case "equality" | "equality and inequality" | "text":
            assert inner == {SMALL: "adaptive", LARGE: "adaptive", None: "shj"}
            assert chosen(on, "inner", LARGE, SIZE) == "shj"
            assert chosen(on, "inner", SIZE.nbytes, SIZE) == "adaptive"  # it may or may not fit
        case "not equal":
            assert inner == {SMALL: "nested_loop", LARGE: "nested_loop", None: "spo"}
            assert chosen(on, "inner", LARGE, SIZE) == "spo"
        case "disjunction":
            assert set(inner.values()) == {"spo"}
        case "other":
            assert set(inner.values()) == {"nested_loop"}
        case _:
            assert set(inner.values()) == {"pmj"}
    if name in UNORDERED:
        assert {chosen(on, how, SMALL) for how in HOW[1:]} == {"spo"}
    else:
        assert {chosen(on, how, memory) for how in HOW[1:] for memory in (SMALL, None)} == {"pmj"}


@pytest.mark.parametrize("name", [*CONDITIONS, *RARER])
@pytest.mark.parametrize("memory", [None, SMALL, 1 << 20, LARGE])
def test_streams_that_end_take_what_a_progressive_join_in_process_takes(name: str, memory: int | None) -> None:
    """Every class of condition and join type has an operator that stays within its memory."""
    condition, facts = parse((CONDITIONS | RARER)[name], *SCHEMAS), InputFacts("stream", on_spark=True)
    for how in HOW:
        operator = plan_join(condition, how, facts, memory_bytes=memory).operator
        assert operator == plan_join(condition, how, InputFacts("progressive"), memory_bytes=memory).operator, how
        kind = operator_class(operator.name)
        assert how in kind.spec.join_types
        assert kind.refuses(Graph.of(condition)) is None
        assert kind.spec.spills or memory is None


@pytest.mark.parametrize("memory", [None, SMALL, LARGE])
def test_streams_without_an_end_leave_no_result_for_it(memory: int | None) -> None:
    facts = InputFacts("stream", on_spark=True, ends=False)
    for name in ("equality", "equality and inequality", "text"):
        operator = plan_join(parse(CONDITIONS[name], *SCHEMAS), facts=facts, memory_bytes=memory).operator
        assert operator.name == "shj"
        assert operator_class(operator.name).spec.emits_at_arrival


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", CONDITIONS)
def test_auto_keeps_to_little_memory(name: str) -> None:
    """Every supported class and join type, with less memory than the rows need."""
    on = CONDITIONS[name]
    for how in some(HOW, list(CONDITIONS).index(name), of=3):
        expected = ids(dovetail.join(LEFT, RIGHT, on, how).to_batches())
        assert expected or (name, how) == ("not equal", "left_anti")
        assert early(LEFT, RIGHT, on, how, memory=SMALL) == expected, how


def readers(table: pa.Table, path: Path) -> Iterator[Any]:
    """The same rows in other forms."""
    yield table.to_reader(max_chunksize=100)
    pq.write_table(table, path)
    yield path


def test_an_equality_larger_than_memory_whatever_holds_the_rows(tmp_path: Path) -> None:
    """The memory needed for the rows of a file or a source is not known for certain."""
    on = CONDITIONS["equality"]
    expected = ids(dovetail.join(LEFT, RIGHT, on).to_batches())
    for left, right in zip(readers(LEFT, tmp_path / "l.parquet"), readers(RIGHT, tmp_path / "r.parquet"), strict=True):
        assert early(left, right, on, memory="300KB") == expected
    assert early(LEFT, RIGHT, on, memory="1MB", workers=2) == expected


@pytest.mark.one_in(2)
@pytest.mark.parametrize("column", ["struct", pytest.param("s", marks=pytest.mark.slow)])
def test_dictionaries_do_not_pass_for_small_tables(column: str) -> None:
    """Rows have few bytes, until every batch of rows is kept with its dictionary."""
    rows, words = 10_000, [f"{number:0100d}" for number in range(750)]
    texts = pa.DictionaryArray.from_arrays(np.arange(rows) % len(words), words)
    values = texts if column == "s" else pa.StructArray.from_arrays([texts], ["s"])
    table = pa.table({"id": np.arange(rows), "v": values})
    assert early(table, table.slice(0, 9), "l.id = r.id", memory="1500KB") == Counter((n, n) for n in range(9))
    assert dovetail.explain(table, table, "l.id = r.id", progressive=True).operator.name == "adaptive"


def test_the_advice_of_a_budget_error_works() -> None:
    for name in ("equality", "text"):
        on = CONDITIONS[name]
        with pytest.raises(BudgetError, match="does not spill") as error:
            early(LEFT, RIGHT, on, algorithm="shj", memory=SMALL)
        advised = re.findall(r"such as algorithm='(\w+)'", str(error.value))
        expected = ids(dovetail.join(LEFT, RIGHT, on).to_batches())
        assert early(LEFT, RIGHT, on, algorithm=advised[0], memory=SMALL) == expected
        assert operator_class(advised[0]).spec.spills


def test_explain_tells_what_and_why() -> None:
    text = str(dovetail.explain(LEFT, RIGHT, CONDITIONS["band"], progressive=True))
    assert "operator   pmj: progressive merge join; sweeps along l.x and r.x; spills what does not fit" in text
    assert "memory     256,000,000 bytes per cell" in text
    text = str(dovetail.explain(LEFT, RIGHT, "l.k = r.k", progressive=True, memory="100KB"))
    assert "operator   adaptive: symmetric hash join on l.k = r.k while memory lasts; then diner" in text
    text = str(dovetail.explain(LEFT, RIGHT, "l.k = r.k", progressive=True, workers=2))
    assert "router     hash, 2 cells: rows are routed by l.k = r.k" in text
    reader = LEFT.to_reader()
    assert dovetail.explain(reader, RIGHT, "l.k = r.k", progressive=True).rows is None
    assert reader.read_all().num_rows == ROWS  # explain did not consume it


@pytest.mark.parametrize(
    ("algorithm", "name", "value", "advice"),
    [
        ("pmj", "sorted_output", True, "orderBy"),
        ("pmj", "measures", {}, "Leave it out"),
        ("spo", "self_join", True, ""),
    ],
)
@pytest.mark.parametrize(("kind", "inputs"), [("stream", "streams"), ("at_rest", "DataFrames")])
def test_parameters_that_are_not_for_spark(
    algorithm: str, name: str, value: Any, advice: str, kind: Any, inputs: str
) -> None:
    schema = pa.schema([("k", pa.int64())])
    with pytest.raises(PlanError, match=rf"{name}: not for {inputs} on Spark, .*{advice}"):
        plan_join(
            parse("l.k = r.k", schema, schema),
            "inner",
            InputFacts(kind, on_spark=True, ends=True),
            algorithm=algorithm,
            memory_bytes=1 << 20,
            parameters={name: value},
        )


def test_a_window_on_what_is_no_timestamp() -> None:
    schema = pa.schema([("x", pa.int64()), ("ts", pa.timestamp("us"))])
    condition = parse("l.x < r.x", schema, schema)
    for name, message in {
        "tss": "on 'tss', which is not a column of the left side. Did you mean 'ts'?",
        "sent": "on 'sent', which is not a column of the left side. It has: x, ts.",
        "x": "on 'x', which is not a timestamp of the left side: it is int64.",
    }.items():
        facts = InputFacts("stream", on_spark=True, window=dovetail.window(time="1 hour", on=name))
        with pytest.raises(InputError, match=message):
            plan_join(condition, facts=facts)
