"""Aggregates of arriving rows over a window, against a row-by-row oracle."""

from decimal import ROUND_HALF_UP, Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.effort import some
from tests.seed import seeded

from dovetail.condition import parse
from dovetail.condition.graph import Graph
from dovetail.condition.select import parse_aggregates
from dovetail.core.metrics import Counters
from dovetail.core.rows import Side
from dovetail.matching.window_positions import Placement, WindowPositions
from dovetail.operators.protocol import Workspace
from dovetail.operators.spo import window_aggregate
from dovetail.operators.spo.spo import Spo
from dovetail.operators.spo.window_aggregate import WindowAggregate
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget
from dovetail.testing import definition, random_table
from dovetail.window import window

WANTED = {
    "n": "count(*)",
    "known": "count(r.k)",
    "total": "sum(r.k)",
    "mean": "avg(r.n)",
    "least": "min(r.s)",
    "last": "max(r.d)",
}
CONDITIONS = ("l.x < r.x AND l.k > r.k", "l.x <= r.x", "l.k = r.k", "abs(l.k - r.k) <= 1 AND l.s <> r.s")


def expected(row: int, partners: list[int], right: pa.Table) -> tuple[Any, ...]:
    def values(name: str) -> list[Any]:
        return [v for v in (right[name][p].as_py() for p in partners) if v is not None]

    k, n, s, d = (values(name) for name in "knsd")
    mean = None if not n else float((sum(n) / len(n)).quantize(Decimal("1e-6"), ROUND_HALF_UP))
    return (len(partners), len(k), sum(k) if k else None, mean, min(s, default=None), max(d, default=None))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("on", "scope", "memory_rows"), some(list(product(CONDITIONS, ["combined", "per_stream"], [None, 16])), 0, of=3)
)
def test_each_row_at_its_arrival(on: str, scope: Any, memory_rows: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_aggregate, "FEW", 3)
    monkeypatch.setattr(window_aggregate, "MOST_PARTIALS", 2)
    spilled = 0
    rng = seeded(f"{on}{scope}")
    for size in (1, 4, 17, 500):
        left, right = random_table(rng, 60), random_table(rng, 60)
        condition = parse(on, left.schema, right.schema)
        wanted = parse_aggregates(WANTED, left.schema, right.schema)
        bounds = window(rows=size, scope=scope)
        store = BlockStore()
        operator = Spo(
            Workspace(
                Graph.of(condition),
                Budget(memory_rows, "rows"),
                store,
                50 if memory_rows is None else 4,
                Counters(),
                parameters={"window": bounds},
            )
        )
        schema = pa.schema([*left.schema, *(pa.field(a.name, a.type) for a in wanted)])
        aggregate = WindowAggregate(operator, wanted, schema)
        matches = set(definition(left, right, on))
        found = []
        for start in range(0, 60, 20):  # rows of both sides in turn: l0 r0 l1 r1 …
            own = np.arange(start, start + 20)
            rights, lefts = WindowPositions(2 * own + 1, own, own + 1), WindowPositions(2 * own, own, own)
            assert not list(operator.arrive(Side.RIGHT, right.slice(start, 20).to_batches()[0], Placement(rights)))
            found += aggregate.over(left.slice(start, 20).to_batches()[0], lefts).to_pylist()
            list(operator.expire(2 * (start + 20), (start + 20, start + 20)))
            spilled += operator.usage.spilled_rows
        store.close()
        for row, line in enumerate(found):
            reach = range(max(0, row - size), row) if scope == "per_stream" else range(row)
            partners = [
                r for r in reach if (row, r) in matches and (scope == "per_stream" or 2 * row - 2 * r - 1 < size)
            ]
            mean = None if line["mean"] is None else float(line["mean"])
            answer = (*(line[name] for name in ("n", "known", "total")), mean, line["least"], line["last"])
            assert answer == pytest.approx(expected(row, partners, right))
    assert (spilled == 0) == (memory_rows is None)
