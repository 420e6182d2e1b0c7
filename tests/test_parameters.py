"""Algorithms through public calls: parameters, join types, changing memory, and abandoned joins."""

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dovetail
from dovetail.errors import ArgumentError, BudgetError, DovetailError, InputError, PlanError
from dovetail.operators.registry import REGISTRY, operator_class

LEFT, RIGHT = (
    pa.table({"k": pa.array(rng.integers(0, 900, 3000), mask=rng.random(3000) < 0.05), "x": rng.random(3000) * 50})
    for rng in (np.random.default_rng(1), np.random.default_rng(2))
)
ON = "l.k = r.k AND l.x < r.x + 5"
HOW = ("inner", "left", "right", "full", "left_semi", "left_anti")


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def given(steps: Iterator[Any]) -> pa.Table:
    return pa.Table.from_batches([step.batch for step in steps])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", HOW)
def test_every_join_type_as_rows_come(how: str) -> None:
    expected = rows(dovetail.join(LEFT, RIGHT, ON, how))
    assert rows(dovetail.join(LEFT, RIGHT, ON, how, algorithm="pmj", memory="70KB")) == expected
    assert rows(given(dovetail.progressive(LEFT, RIGHT, ON, how, algorithm="pmj", memory="70KB", fan_in=4))) == expected
    assert rows(given(dovetail.progressive(LEFT, RIGHT, ON, how))) == expected  # auto finds one that supports it
    if how in operator_class("spo").spec.join_types:
        assert rows(given(dovetail.progressive(LEFT, RIGHT, ON, how, algorithm="spo"))) == expected


@pytest.mark.parametrize(
    ("algorithm", "parameters"),
    [
        ("rpj", {"n_flush": 0.1, "handover": "bucket"}),
        ("xjoin", {"partitions": 3}),
        ("hmj", {"tolerance": 0.1, "acceptable": 4}),
        ("diner", {"regions": 2, "counted": True, "reload": True}),
        ("pmj", {"strictness": "semi_strict"}),
        ("pmj", {"first_rows": None, "fan_in": 6}),
        ("pmj", {"sorted_output": True}),
    ],
)
def test_parameters_reach_the_algorithm(algorithm: str, parameters: dict[str, Any]) -> None:
    expected = rows(dovetail.join(LEFT, RIGHT, ON))
    setting: dict[str, Any] = {"algorithm": algorithm, "memory": "100KB", **parameters}
    assert rows(dovetail.join(LEFT, RIGHT, ON, **setting)) == expected
    steps = list(dovetail.progressive(LEFT, RIGHT, ON, **setting))
    assert rows(given(iter(steps))) == expected
    if "sorted_output" in parameters:
        keys = given(iter(steps))["k"].to_pylist()
        assert keys == sorted(keys)
    if "sorted_output" in parameters or "strictness" in parameters:
        assert {step.phase for step in steps} == {"cleanup"}
    if "first_rows" in parameters:
        assert steps[0].results > 4  # only when the first run is full


def test_rows_that_meet_early_give_results_early() -> None:
    """The first run is joined in parts, each twice as large as the previous one."""
    sizes = {}
    for first_rows in (None, 64):
        parameters = {"algorithm": "pmj", "memory": "1MB", "first_rows": first_rows}
        steps = dovetail.progressive(LEFT, RIGHT, "l.k = r.k", **parameters)
        sizes[first_rows] = next(steps).results
    assert sizes[64] < sizes[None]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("setting", "error", "message"),
    [
        ({"algorithm": "pmj", "fan_im": 3}, ArgumentError, "'?fan_im'?.* Did you mean '?fan_in'?"),
        ({"cels": 3}, ArgumentError, "has no argument 'cels'. Did you mean 'cells'?"),
        ({"whatever": 3}, TypeError, r"help\(dovetail\.progressive\) lists its arguments"),
        ({"algorithm": "shj", "n_flush": 0.1}, InputError, "n_flush: not a parameter .* There are none"),
        ({"algorithm": "rpj", "n_flush": "much"}, InputError, "n_flush must be a number or None; got 'much'"),
        ({"algorithm": "rpj", "n_flush": 2}, InputError, "must be between 0 and 1"),
        ({"algorithm": "pmj", "fan_in": 2}, InputError, "fan_in must be at least 4"),
        ({"algorithm": "diner", "regions": 1}, InputError, "regions must be at least 2"),
        ({"algorithm": "diner", "regions": True}, InputError, "regions must be an integer; got True"),
        (
            {"n_flush": 0.1},
            InputError,
            "n_flush is a parameter of an algorithm: say which, algorithm='dphj' or hmj, rpj",
        ),
        ({"algorithm": "rpj", "how": "left"}, PlanError, "algorithm='rpj' supports inner joins only; pmj and spo"),
        ({"how": "sideways"}, InputError, "how must be one of"),
        ({"how": "outer_left"}, InputError, "got 'outer_left'. Did you mean 'left'?"),
        ({"how": "ful"}, InputError, "Did you mean 'full'?"),
    ],
)
def test_what_is_wrong_is_said_at_the_call(setting: dict[str, Any], error: type[DovetailError], message: str) -> None:
    with pytest.raises(error, match=message):
        dovetail.progressive(LEFT, RIGHT, "l.k = r.k", **setting)
    if "algorithm" in setting:
        with pytest.raises(error, match=message):
            dovetail.join(LEFT, RIGHT, "l.k = r.k", **setting)
        if setting["algorithm"] != "shj" and "how" not in setting and "at least" not in message:
            with pytest.raises(error, match=message):
                dovetail.testing.simulate(setting.pop("algorithm"), LEFT, RIGHT, "l.k = r.k", **setting)


def test_explain_tells_parameters_and_what_pmj_sweeps_along() -> None:
    on = "abs(l.x - r.x) <= 1 AND l.k < r.k"
    text = str(dovetail.explain(LEFT, RIGHT, on, "left", algorithm="pmj", fan_in=8))
    assert "operator   pmj: asked for; progressive merge join; sweeps along l.x and r.x" in text
    assert "driven by  -1.0 <= l.x - r.x <= 1.0" in text
    assert "checked    l.k < r.k" in text
    assert "parameter  fan_in = 8" in text


def test_memory_grows_and_shrinks_while_it_runs() -> None:
    expected = rows(dovetail.join(LEFT, RIGHT, "l.k = r.k"))
    steps = dovetail.progressive(LEFT, RIGHT, "l.k = r.k", algorithm="pmj", memory="200KB")
    batches = []
    for step, memory in zip(steps, [*(["300KB", "1MB", "400KB", 500_000] * 100), None], strict=False):
        batches.append(step.batch)
        steps.memory(memory)  # type: ignore[attr-defined]
    batches += [step.batch for step in steps]
    assert rows(pa.Table.from_batches(batches)) == expected
    steps = dovetail.progressive(LEFT, RIGHT, "l.k = r.k", algorithm="pmj", memory="200KB")
    with pytest.raises(BudgetError, match="65,536 bytes or more"):
        steps.memory("1KB")  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="memory must be"):
        steps.memory("lots")  # type: ignore[attr-defined]
    with pytest.raises(PlanError, match="the memory of shj is fixed"):
        dovetail.progressive(LEFT, RIGHT, "l.k = r.k", algorithm="shj").memory("1MB")  # type: ignore[attr-defined]


def test_memory_does_not_shrink_below_what_is_on_disk() -> None:
    """Pages of runs were sized for more memory; two pages per side must always fit."""
    left, right = (pa.table({"k": np.random.default_rng(s).integers(0, 5000, 60_000)}) for s in (1, 2))
    steps = dovetail.progressive(left, right, "l.k = r.k", algorithm="pmj", memory="600KB", fan_in=4)
    batches = []
    for step in steps:
        batches.append(step.batch)
        if step.phase == "cleanup":
            break
    with pytest.raises(BudgetError, match="on disk"):
        steps.memory("70KB")  # type: ignore[attr-defined]
    steps.memory("590KB")  # type: ignore[attr-defined]
    batches += [step.batch for step in steps]
    assert sum(batch.num_rows for batch in batches) == dovetail.count(left, right, "l.k = r.k")


@pytest.mark.parametrize(
    ("algorithm", "leave"),
    [
        *((name, "forget") for name in REGISTRY if operator_class(name).spec.spills),
        *(("pmj", leave) for leave in ("close", "with", "error")),
    ],
)
def test_a_join_that_is_left_frees_memory_and_files(
    algorithm: str, leave: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    steps: Any = dovetail.progressive(LEFT, RIGHT, "l.k = r.k", algorithm=algorithm, memory="70KB")
    operator = weakref.ref(steps._operator)

    def until_it_spills(steps: Any) -> None:
        for _ in steps:
            if list(tmp_path.glob("*/*")):
                return

    def fails(steps: Any) -> None:
        with steps:
            until_it_spills(steps)
            raise ZeroDivisionError

    match leave:
        case "with":
            with steps:
                until_it_spills(steps)
        case "error":
            with pytest.raises(ZeroDivisionError):
                fails(steps)
        case "close":
            until_it_spills(steps)
            steps.close()
        case _:
            until_it_spills(steps)
            assert list(tmp_path.iterdir())
    del steps
    gc.collect()
    assert not list(tmp_path.iterdir())
    assert operator() is None
