"""Conditions over several inputs."""

import pyarrow as pa
import pytest

from dovetail.condition import Band, Equal, Less
from dovetail.condition.graph import parse_graph
from dovetail.errors import ConditionError

SCHEMAS = {
    "o": pa.schema([("custkey", pa.int64()), ("x", pa.float64()), ("s", pa.struct([("f", pa.int32())]))]),
    "c": pa.schema([("custkey", pa.int64()), ("nationkey", pa.int32()), ("x", pa.float64())]),
    "n": pa.schema([("nationkey", pa.int64()), ("name", pa.string()), ("x", pa.float64())]),
}


def test_conjuncts_over_two_inputs_are_edges() -> None:
    graph = parse_graph("o.custkey = c.custkey AND n.nationkey = C.NationKey AND abs(o.x - c.x) < 1", SCHEMAS)
    assert [(edge.left, edge.right) for edge in graph.edges] == [("o", "c"), ("c", "n")]
    assert [type(p) for p in graph.edges[0].condition.predicates] == [Equal, Band]
    assert not graph.residual


def test_conjuncts_over_one_input_filter_it() -> None:
    on = "o.custkey = c.custkey AND (c.nationkey = n.nationkey AND name = 'PERU') AND s.f = 3"
    graph = parse_graph(on, SCHEMAS)
    assert [len(graph.filters[alias]) for alias in "ocn"] == [1, 0, 1]


def test_conjuncts_over_three_inputs_are_a_residual() -> None:
    graph = parse_graph("o.custkey = c.custkey AND c.nationkey = n.nationkey AND o.x + c.x < n.x", SCHEMAS)
    assert graph.wide == (("c", "x"), ("n", "x"), ("o", "x"))
    batches = {a: pa.record_batch([pa.array([x])], ["x"]) for a, x in (("o", 1.0), ("c", 2.0), ("n", 4.0))}
    rows = {alias: pa.array([0]).to_numpy() for alias in "ocn"}
    checked = graph.checked(batches, rows)
    assert checked is not None
    assert checked.tolist() == [True]


def test_the_halves_of_between_may_belong_to_different_edges() -> None:
    graph = parse_graph("o.custkey = c.custkey AND o.x BETWEEN c.x AND n.x", SCHEMAS)
    assert [(edge.left, edge.right) for edge in graph.edges] == [("o", "c"), ("o", "n")]
    assert isinstance(graph.edges[1].condition.predicates[0], Less)


def test_a_false_condition_lets_nothing_pass() -> None:
    graph = parse_graph("o.custkey = c.custkey AND c.nationkey = n.nationkey AND 1 = 2", SCHEMAS)
    passing = graph.passing("o", pa.RecordBatch.from_pylist([{"custkey": 1}], schema=SCHEMAS["o"]))
    assert passing is not None
    assert not passing.any()


@pytest.mark.parametrize(
    ("on", "complaint"),
    [
        ("o.custkey = c.custkey", "nothing joins n with o"),
        ("o.custkey = c.custkey AND o.x + c.x = n.x", "nothing joins n with o"),
        ("o.custkey = c.custkey AND c.zz = n.nationkey", r"c\.zz: no such column"),
        ("x = c.custkey", "x is in several inputs: write o.x or c.x or n.x"),
        ("q.x = o.x", "unknown alias q. The inputs are o, c, n"),
        ("zz = o.x", "zz: no such column in any input"),
        ("o.custkey = ", "something is missing"),
        ([], "SQL text"),
    ],
)
def test_what_is_wrong_is_said(on: str, complaint: str) -> None:
    with pytest.raises(ConditionError, match=complaint):
        parse_graph(on, SCHEMAS)
