"""Every registered operator, over generated schedules, against two oracles: the definition, and DuckDB."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from tests.effort import repeat
from tests.nans import NANS
from tests.seed import SEED

from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.operators.registry import REGISTRY, operator_class
from dovetail.testing import COLUMNS, CONDITIONS, check_operator, check_run, random_table

SCHEMA = random_table(random.Random(0), 0).schema


@cache
def usable(name: str) -> list[str]:
    return [c for c in CONDITIONS if operator_class(name).refuses(Graph.of(parse(c, SCHEMA, SCHEMA))) is None]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 20))
    one_key = draw(st.booleans()) and draw(st.booleans())
    columns = {}
    for name, (type_, values) in COLUMNS.items():
        domain = values[:1] if one_key else values
        columns[name] = pa.array(draw(st.lists(st.sampled_from(domain), min_size=rows, max_size=rows)), type_)
    return pa.table(columns)


arrivals = st.tuples(st.sampled_from(["l", "r"]), st.integers(1, 8))
stalls = st.tuples(st.just("stall"), st.integers(1, 9))
restarts = st.just(("restart",))
events = st.one_of(
    st.tuples(arrivals),
    st.tuples(stalls),
    st.tuples(restarts),
    st.tuples(stalls, restarts),  # in the middle of reactive work
)


@st.composite
def schedules(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Arrivals, stalls and restarts; sometimes a side ends early, and only the other one arrives after that."""
    schedule: list[tuple[Any, ...]] = [event for group in draw(st.lists(events, max_size=25)) for event in group]
    for side in draw(st.sampled_from([(), ("l",), ("r",), ("l", "r")])):
        at = draw(st.integers(0, len(schedule)))
        schedule = [*schedule[:at], ("end", side), *(e for e in schedule[at:] if e[0] != side)]
    return schedule


@pytest.mark.parametrize("name", REGISTRY)
@given(data=st.data())
def test_exactly_once_under_any_schedule(name: str, data: st.DataObject) -> None:
    left, right = data.draw(tables()), data.draw(tables())
    block_rows = data.draw(st.sampled_from([1, 2, 3, 5]))
    memory_rows = data.draw(st.one_of(st.none(), st.integers(4, 16).map(lambda blocks: blocks * block_rows)))
    on = data.draw(st.sampled_from(usable(name)))
    schedule = data.draw(schedules())
    note(f"left = {left.to_pydict()}\nright = {right.to_pydict()}")
    check_run(name, left, right, on, schedule, memory_rows=memory_rows, block_rows=block_rows)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", REGISTRY)
def test_the_public_check_accepts_it(name: str) -> None:
    """With every condition for two inputs, and with every supported number of inputs from two to six."""
    check_operator(name, inputs=[2], cases=len(usable(name)), seed=SEED)
    check_operator(name, cases=repeat(150), seed=SEED + 1)


@pytest.mark.parametrize("name", REGISTRY)
def test_it_has_a_page(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "operators" / f"{name}.md"
    assert page.read_text().startswith(f"# {name}: ")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", sorted(REGISTRY))
@pytest.mark.parametrize("type_", NANS, ids=str)
def test_nans_of_any_bits_are_equal(name: str, type_: pa.DataType) -> None:
    """Five NaNs and a smaller number. Expected counts are given, because the definition uses the same codes."""
    table = pa.table({"x": np.append(NANS[type_], type_.to_pandas_dtype()(1))})
    for on, pairs in (("l.x = r.x", 26), ("l.x <= r.x", 31), ("l.x < r.x", 5)):
        if operator_class(name).refuses(Graph.of(parse(on, table.schema, table.schema))) is None:
            run = check_run(name, table, table, on, [("l", 3), ("r", 3)], memory_rows=6, block_rows=1)
            assert len(run.pairs) == pairs
