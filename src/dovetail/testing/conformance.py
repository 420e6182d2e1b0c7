"""Prove an operator or a router right: exactly once, against the definition of a join.

    check_operator("diner")                            random tables, conditions, schedules, budgets, restarts
    check_multi_operator("miner")                      the same for several inputs
    check_router(router, left, right, on="l.k = r.k")  every matching pair meets in exactly one cell
    check_sweep(left, right, on="l.x < r.x")           a sweep finds every pair; also for predicates of your own

The definition is the cross product, filtered. Rows are compared by identity, never by value.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.condition import Condition, matching, parse, passing
from dovetail.condition.graph import Graph
from dovetail.core.rows import Side, one_batch
from dovetail.core.tables import arrow_table
from dovetail.errors import BudgetError
from dovetail.operators.registry import operator_class
from dovetail.routing.protocol import Router
from dovetail.simulation.laboratory import Run, simulate
from dovetail.testing.random_tables import random_table
from dovetail.testing.several import random_multi_schedule

Schedule = list[tuple[Any, ...]]

CONDITIONS = (
    "l.k = r.k",
    "l.k = r.k AND l.x < r.x",
    "l.k = r.k AND l.s = r.s",
    "l.s = r.s",
    "l.x = r.x",
    "l.d = r.d AND l.b = r.b",
    "l.t = r.t",
    "l.n = r.n",
    "l.w = r.w",
    "l.k = r.x",
    "l.k + 1 = r.k AND l.x <> 0",
    "l.x < r.x",
    "l.x <= r.x AND l.k > r.k",
    "l.s < r.s AND l.t >= r.t",
    "l.k != r.k",
    "abs(l.x - r.x) <= 1",
    "l.k BETWEEN r.k - 1 AND r.k + 1",
    "l.k < r.n AND r.n <= l.n",
    "l.k = r.k OR l.s = r.s",
    "l.k <=> r.k",
    "l.k IS NULL OR r.x > 0",
    "l.x > 1 AND r.x < 1",
)
"""What `check_operator` tries; an operator sees those that it does not refuse."""


def check_operator(name: str, *, cases: int = 200, seed: int = 0, on: Sequence[str] = CONDITIONS) -> None:
    """Run an operator over random cases; raise AssertionError with everything needed to repeat the first that fails."""
    rng = random.Random(seed)
    schemas = [random_table(rng, 0).schema for _ in Side]
    usable = [c for c in on if operator_class(name).refuses(Graph.of(parse(c, *schemas))) is None]
    assert usable, f"{name} refuses every condition"
    for case in range(cases):
        left, right = random_table(rng), random_table(rng)
        schedule = random_schedule(rng, left.num_rows, right.num_rows)
        block_rows = rng.choice([1, 2, 3, 5])
        # An operator that does not spill is never given a budget that it must exceed: that is another test.
        memory_rows = rng.choice([4, 5, 8, 16]) * block_rows if rng.random() < 0.8 else None
        condition = usable[case % len(usable)]
        setting = {"memory_rows": memory_rows, "block_rows": block_rows, "seed": case}
        check_run(name, left, right, condition, schedule, **setting)


def check_run(
    name: str, left: pa.Table, right: pa.Table, on: Any, schedule: Iterable[Sequence[Any]], **setting: Any
) -> Run:
    """Simulate one run and compare it with the definition."""
    schedule = list(schedule)
    repeat = f"simulate({name!r}, left, right, on={on!r}, schedule={schedule}, **{setting})"
    try:
        run = simulate(name, left, right, on, schedule, **setting)
    except BudgetError:
        if operator_class(name).spills:
            raise
        run = simulate(name, left, right, on, schedule, **{**setting, "memory_rows": None})
    expected = Counter(definition(left, right, on))
    found = Counter(run.pairs)
    assert found == expected, (
        f"{repeat}\nmissing: {sorted((expected - found).elements())}\n"
        f"too many: {sorted((found - expected).elements())}\n"
        f"left = pa.table({left.to_pydict()})\nright = pa.table({right.to_pydict()})"
    )
    assert len(run.phases) == len(run.pairs), repeat
    memory_rows = setting.get("memory_rows")
    if memory_rows is not None and operator_class(name).spills:
        assert run.counters.peak_rows_in_memory <= memory_rows, f"{repeat}: over its budget"
    return run


def check_router(
    router: Router,
    left: Any,
    right: Any,
    on: Any,
    *,
    unique: Side | None = None,
    spread: Sequence[np.ndarray[Any, Any]] | None = None,
) -> None:
    """Route both tables and see that each matching pair shares exactly one cell.

    With `unique`, rows of that side must not visit more than one cell, as outer and semi joins need.
    """
    tables = [arrow_table(left), arrow_table(right)]
    cells_of: list[dict[int, list[int]]] = []
    for side in Side:
        batch = one_batch(tables[side], tables[side].schema)
        numbers = np.arange(batch.num_rows) * 7919 if spread is None else spread[side]
        visits = router.route(side, batch, numbers)
        visited: dict[int, list[int]] = {}
        for row, cell in zip(visits.rows.tolist(), visits.cells.tolist(), strict=True):
            assert 0 <= cell < router.cells, f"row {row} of {side.alias} visits cell {cell} of {router.cells}"
            visited.setdefault(row, []).append(cell)
        for row, cells in visited.items():
            assert len(cells) == len(set(cells)), f"row {row} of {side.alias} visits a cell twice: {cells}"
            assert side is not unique or len(cells) == 1, f"row {row} of {side.alias} visits several cells: {cells}"
        cells_of.append(visited)
    for left_row, right_row in definition(tables[0], tables[1], on):
        ours = set(cells_of[0].get(left_row, [])) & set(cells_of[1].get(right_row, []))
        assert len(ours) == 1, f"rows {left_row} and {right_row} match and meet in {len(ours)} cells: {sorted(ours)}"


def definition(left: pa.Table, right: pa.Table, on: Any) -> list[tuple[int, int]]:
    """Cross join + filter: the pairs of row numbers that a join must give."""
    condition = on if isinstance(on, Condition) else parse(on, left.schema, right.schema)
    batches = [one_batch(table, table.schema) for table in (left, right)]
    left_rows = np.repeat(np.arange(left.num_rows), right.num_rows)
    right_rows = np.tile(np.arange(right.num_rows), left.num_rows)
    good = matching(condition.conjuncts, batches[0], left_rows, batches[1], right_rows)
    for side, rows in ((Side.LEFT, left_rows), (Side.RIGHT, right_rows)):
        alive = passing(condition.filters[side], side, batches[side])
        if alive is not None:
            good &= alive[rows]
    return list(zip(left_rows[good].tolist(), right_rows[good].tolist(), strict=True))


def random_schedule(rng: random.Random, left_rows: int, right_rows: int) -> Schedule:
    """Arrivals in random portions, stalls that break off reactive work, early ends, restarts."""
    return random_multi_schedule(rng, {"l": left_rows, "r": right_rows})
