"""Rows of several inputs in the cells of a hypercube, without Spark: every result is found in exactly one cell."""

import pickle
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from tests.seed import seeded

from dovetail.columns.batches import one_batch
from dovetail.condition.graph import parse_graph
from dovetail.execution.output import multi_schema
from dovetail.planning.planner import plan_join
from dovetail.routing.routers import hypercube
from dovetail.spark.exchange.packing import ARROW_PACKED, multi_packer
from dovetail.spark.multiway.multi_tables import joined_cells
from dovetail.testing import definition, random_condition, random_table


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(5))
def test_every_result_is_in_exactly_one_cell(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.spark.multiway.multi_tables.freeze_modules", lambda: None)
    rng = seeded(seed)
    for _ in range(8):
        aliases = tuple("abcdef")[: rng.choice([3, 3, 4, 5])]
        most = {3: 20, 4: 10, 5: 6}[len(aliases)]
        tables = {alias: random_table(rng, rng.choice([1, most, most])) for alias in aliases}
        on = random_condition(rng, aliases)
        expected = Counter(definition(tables, on=on))
        inputs = {a: t.append_column("row", pa.array(np.arange(t.num_rows))) for a, t in tables.items()}
        graph = parse_graph(on, {alias: table.schema for alias, table in inputs.items()})
        cells = rng.choice([1, 4, 7, 12])
        router = hypercube(graph, {a: t.num_rows * rng.choice([1, 100]) for a, t in tables.items()}, cells)
        assert router.cells <= cells
        router = pickle.loads(pickle.dumps(router))
        packed = [
            batch
            for number, alias in enumerate(aliases)
            for batch in multi_packer(router, number)(iter(inputs[alias].to_batches(max_chunksize=7)))
        ]
        gathered = pa.Table.from_batches(packed, ARROW_PACKED).sort_by(
            [("cell", "ascending"), ("side", "ascending"), ("seq", "ascending")]
        )
        output = multi_schema(graph.schemas)
        joined = joined_cells(plan_join(graph), output)
        results = pa.Table.from_batches(joined(iter(gathered.to_batches())), output)
        found = Counter(zip(*(results[f"{alias}_row"].to_pylist() for alias in aliases), strict=True))
        assert found == expected, on


def test_large_inputs_are_not_copied() -> None:
    schemas = {alias: pa.schema([("k", pa.int64()), ("n", pa.int64())]) for alias in ("fact", "a", "b")}
    graph = parse_graph("fact.k = a.k AND fact.n = b.n", schemas)
    router = hypercube(graph, {"fact": 1_000_000, "a": 1000, "b": 1000}, 16)
    batch = one_batch(pa.table({"k": np.arange(100), "n": np.arange(100)}), schemas["fact"])
    _, visits = router.route("fact", batch, np.arange(100))
    assert router.cells == 16
    assert len(visits.rows) == 100
    assert len(router.route("a", batch, np.arange(100))[1].rows) > 100


def test_without_equalities_the_largest_input_is_dealt_out() -> None:
    schemas = {alias: pa.schema([("x", pa.int64())]) for alias in "abc"}
    graph = parse_graph("a.x < b.x AND b.x < c.x", schemas)
    router = hypercube(graph, {"a": 10, "b": 100_000, "c": 10}, 8)
    assert router.needs_spread("b")
    assert not router.needs_spread("a")
    assert router.cells == 8
