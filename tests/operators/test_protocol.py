"""Properties of every operator, however it is created."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.core.metrics import Counters
from dovetail.errors import InputError
from dovetail.operators.protocol import Workspace
from dovetail.operators.registry import operator_class, operator_names
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64())])


@pytest.mark.parametrize("name", operator_names(2))
def test_parameters_that_it_does_not_have_are_refused(name: str) -> None:
    graph = Graph.of(parse("l.k = r.k", SCHEMA, SCHEMA))
    workspace = Workspace(graph, Budget(None), BlockStore(), 10, Counters(), parameters={"colour": "red"})
    with pytest.raises(InputError, match=f"colour: not a parameter of algorithm='{name}'"):
        operator_class(name)(workspace)
