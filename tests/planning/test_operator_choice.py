"""One table determines the operator: for progressive joins, streams, hints, and two or more inputs."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest
from tests.planning.test_planner import CONDITIONS, HOW, RARER, SCHEMAS

from dovetail.condition import parse
from dovetail.condition.graph import Graph, parse_graph
from dovetail.core.join_types import JoinType
from dovetail.operators.registry import REGISTRY, operator_class
from dovetail.planning.operator_choice import TABLE, Arrivals, Memory, choose_operator

SOURCES = Path(__file__).parents[2] / "src" / "dovetail"
KEYS = pa.schema({"k": pa.int64(), "x": pa.float64()})
SEVERAL = {
    "a.k = b.k AND b.k = c.k": "miner",
    "a.x < b.x AND b.x < c.x": "miner",
    "abs(a.x - b.x) <= 1 AND b.k = c.k": "miner",
    "a.k <> b.k AND b.k <> c.k": None,
}


@pytest.mark.parametrize("name", [*CONDITIONS, *RARER])
def test_what_is_chosen_can_do_it(name: str) -> None:
    graph = Graph.of(parse((CONDITIONS | RARER)[name], *SCHEMAS))
    for how, memory, ends in product(HOW, get_args(Memory), (True, False)):
        chosen = choose_operator(Arrivals(graph, JoinType.read(how), memory, ends))
        if chosen is None:
            assert not ends
            continue
        kind = operator_class(chosen.name)
        assert how in kind.spec.join_types
        assert kind.refuses(graph) is None
        assert kind.spec.emits_at_arrival or ends
        assert kind.spec.spills or memory != "scarce" or not ends


def test_every_row_of_the_table_is_the_choice_of_something() -> None:
    graphs = [Graph.of(parse(on, *SCHEMAS)) for on in CONDITIONS.values()]
    graphs += [parse_graph(on, dict.fromkeys("abc", KEYS)) for on in SEVERAL]
    found = set()
    for graph, how, memory, ends in product(graphs, HOW, get_args(Memory), (True, False)):
        chosen = choose_operator(Arrivals(graph, JoinType.read(how), memory, ends))
        if chosen is not None:
            found.add((chosen.name, chosen.why.rpartition("; ")[2]))
    for row in TABLE:
        assert any(name == row.operator and (not row.why or row.why == why) for name, why in found), row


@pytest.mark.parametrize(("on", "expected"), SEVERAL.items())
def test_several_inputs(on: str, expected: str | None) -> None:
    chosen = choose_operator(Arrivals(parse_graph(on, dict.fromkeys("abc", KEYS))))
    assert (chosen and chosen.name) == expected


def outside_of_operators() -> dict[str, ast.AST]:
    paths = [path for path in SOURCES.rglob("*.py") if path.relative_to(SOURCES).parts[0] != "operators"]
    return {str(path.relative_to(SOURCES)): ast.parse(path.read_text()) for path in paths}


@pytest.mark.one_in(2)
def test_nothing_outside_compares_the_names_of_operators() -> None:
    comparing = [
        f"{path}:{node.lineno}"
        for path, tree in outside_of_operators().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and part.value in REGISTRY
    ]
    assert comparing == []


@pytest.mark.one_in(2)
def test_a_workspace_is_made_from_a_plan_only() -> None:
    calls = [
        f"{path}:{node.lineno}"
        for path, tree in outside_of_operators().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Workspace"
    ]
    assert calls == []
