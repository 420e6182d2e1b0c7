"""The conformance check accepts correct operators and finds faults, with two and with more inputs."""

import random
import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.testing import broken_operators

from dovetail.core.join_types import JoinType
from dovetail.errors import BudgetError, InputError, StateError
from dovetail.operators.registry import REGISTRY
from dovetail.testing import CONDITIONS, check_operator, check_run, definition, random_condition, random_table
from dovetail.testing.conformance import duckdb_sql, results_by_definition, results_by_duckdb

SCHEMA = random_table(random.Random(0), 0).schema
FAULTS = {
    "LosesARow": "missing",
    "DoublesARow": "too many",
    "EmitsAnOuterRow": "too many",
    "LosesRowsAtRestore": "missing",
}


def register(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(REGISTRY, name, (f"{broken_operators.__name__}:{name}",))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("oracle", ["definition", "duckdb"])
@pytest.mark.parametrize("inputs", [2, 4])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, inputs: int, oracle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, fault)
    with pytest.raises(AssertionError) as caught:
        check_operator(fault, inputs=[inputs], oracle=oracle)
    message = str(caught.value)
    lines = dict(line.split(": ", 1) for line in message.splitlines() if line.startswith(("missing", "too many")))
    assert {what for what, rows in lines.items() if rows != "[]"} == {FAULTS[fault]}
    assert f"compared with {oracle}" in message


@pytest.mark.parametrize("oracle", ["definition", "duckdb"])
def test_a_wrong_outer_row_is_found(oracle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "PadsTheWrongSide")
    with pytest.raises(AssertionError, match=r"missing: \[\(\d+, None\)"):
        check_operator("PadsTheWrongSide", inputs=[2], oracle=oracle)
    check_operator("PadsTheWrongSide", inputs=[2], on=["l.k = r.k"], cases=1, seed=1)  # correct for an inner join


@pytest.mark.parametrize("inputs", [2, 4])
def test_more_memory_than_allowed_is_found(inputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "ExceedsItsBudget")
    with pytest.raises(BudgetError) as caught:
        check_operator("ExceedsItsBudget", inputs=[inputs])
    assert caught.value.__notes__[0].startswith("simulate('ExceedsItsBudget', tables, on=")


@pytest.mark.parametrize(
    ("fault", "word"), [("NamesNoSegments", "is missing"), ("CountsNoSnapshots", "1 comes after 1")]
)
def test_a_snapshot_that_no_other_process_could_restore_is_found(
    fault: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, fault)
    with pytest.raises(StateError, match=word):
        check_operator(fault)


def test_a_failure_comes_with_all_that_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "DoublesARow")
    with pytest.raises(AssertionError) as caught:
        check_operator("DoublesARow", inputs=[4])
    call, *_, a, b, c, d = str(caught.value).splitlines()
    assert [line.split(" = ")[0] for line in (a, b, c, d)] == list("abcd")
    assert call.startswith("simulate('DoublesARow', tables, on=")


@pytest.mark.parametrize("inputs", [2, 3, 4, 5, 6])
def test_every_number_of_inputs_is_tried(inputs: int) -> None:
    check_operator("miner", inputs=[inputs], cases=4)


def test_own_conditions_say_how_many_inputs_there_are() -> None:
    check_operator("miner", on=["l.k = r.k", "a.k = b.k AND b.k = c.k AND c.k = d.k"], cases=4)
    with pytest.raises(AssertionError, match="no condition for a number of inputs that shj takes"):
        check_operator("shj", on=["a.k = b.k AND b.k = c.k"])
    with pytest.raises(AssertionError, match="mjoin refuses every condition for 2 inputs"):
        check_operator("mjoin", on=["l.k < r.k"])


def random_tables(rng: random.Random, aliases: str) -> dict[str, pa.Table]:
    most = {2: 20, 3: 14, 4: 8, 5: 5, 6: 4}[len(aliases)]
    return {alias: random_table(rng, rng.choice([0, 1, most, most])) for alias in aliases}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("how", [how for how in JoinType if how is not JoinType.RIGHT_ANTI])
@pytest.mark.parametrize("on", CONDITIONS)
def test_the_definition_agrees_with_duckdb(on: str, how: JoinType) -> None:
    rng = random.Random(on)
    for _ in range(4):
        tables = random_tables(rng, "lr")
        assert Counter(results_by_definition(tables, on, how)) == Counter(results_by_duckdb(tables, on, how))


@pytest.mark.parametrize("inputs", [3, 4, 5, 6])
def test_the_definition_of_several_inputs_agrees_with_duckdb(inputs: int) -> None:
    rng = random.Random(inputs)
    for _ in range(25):
        tables = random_tables(rng, "abcdef"[:inputs])
        on = random_condition(rng, list(tables))
        expected = Counter(results_by_duckdb(tables, on, JoinType.INNER))
        assert Counter(definition(tables, on=on)) == expected, on


@pytest.mark.parametrize(
    "on",
    [
        "l.k * 2 = r.k",
        "l.k / 2 < r.x",
        "l.k % 2 = r.k",
        "lower(l.s) = r.s",
        "CAST(l.k AS STRING) = r.s",
        "CASE WHEN l.b THEN l.k = r.k ELSE FALSE END",
        "l.f < r.x",
        "k = r.k",
    ],
)
def test_what_duckdb_is_not_asked(on: str) -> None:
    schema = SCHEMA.append(pa.field("f", pa.float32()))
    assert duckdb_sql(on, {"l": schema, "r": schema}) is None
    tables = {alias: schema.empty_table() for alias in "lr"}
    with pytest.raises(InputError, match="ask the definition"):
        results_by_duckdb(tables, on, JoinType.INNER)


def test_what_duckdb_is_asked() -> None:
    schemas = {"l": SCHEMA, "r": SCHEMA}
    assert all(duckdb_sql(on, schemas) for on in CONDITIONS)
    assert duckdb_sql("l.k <=> r.k", schemas) == '"l"."k" IS NOT DISTINCT FROM "r"."k"'


def test_without_duckdb_the_definition_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    check_operator("shj", cases=2)
    with pytest.raises(InputError, match="the oracle duckdb needs the package of that name"):
        check_operator("shj", oracle="duckdb")


def test_an_unknown_oracle_is_refused() -> None:
    with pytest.raises(InputError, match="oracle must be one of definition, duckdb"):
        check_operator("shj", oracle="sqlite")


@pytest.mark.parametrize("on", ["l.k = r.k", "l.x > 0"])
def test_two_inputs_by_name_are_the_two_sides(on: str) -> None:
    table = pa.table({"k": [1, 2, 2], "x": [0.0, 1.0, 2.0]})
    expected = definition(table, table, on)
    assert definition({"l": table, "r": table}, on=on) == expected
    run = check_run("nested_loop", {"l": table, "r": table}, on=on, schedule=[("left", 1), ("r", 2)])
    assert Counter(run.pairs) == Counter(expected)


def test_two_inputs_of_any_name() -> None:
    tables = {alias: pa.table({"k": np.arange(3)}) for alias in ("old", "new")}
    run = check_run("miner", tables, on="old.k < new.k", schedule=[("new", 2), ("end", "old")])
    assert sorted(run.pairs) == [(0, 1), (0, 2), (1, 2)]
