"""Prove an operator of several inputs right: `check_multi_operator`, against cross product and filter."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.condition import matching
from dovetail.condition.graph import Graph, parse_graph
from dovetail.core.rows import Rows, one_batch
from dovetail.core.tables import arrow_table
from dovetail.operators.registry import operator_class
from dovetail.simulation.laboratory import Run, simulate
from dovetail.testing.random_tables import random_table

ALIASES = ("a", "b", "c", "d", "e", "f")

EDGES = (
    "{0}.k = {1}.k",
    "{0}.k = {1}.k",
    "{0}.s = {1}.s",
    "{0}.x = {1}.x",
    "{0}.t = {1}.t",
    "{0}.w = {1}.w",
    "{0}.k = {1}.k AND {0}.s = {1}.s",
    "{0}.d = {1}.d AND {0}.x <= {1}.x",
    "abs({0}.x - {1}.x) <= 1",
    "abs({0}.x - {1}.x) < 0.5",
    "{0}.k BETWEEN {1}.k - 1 AND {1}.k + 1",
    "{0}.n - {1}.n < 0.5 AND {0}.n - {1}.n > -0.6",
    "{0}.k < {1}.k AND {0}.d = {1}.d",
    "{0}.x < {1}.x",
    "{0}.k = {1}.x",
    "{0}.k + 1 = {1}.k",
)
"""What two inputs can be joined by; an operator sees the conditions made of these that it does not refuse."""


def check_multi_operator(
    name: str, *, cases: int = 150, seed: int = 0, inputs: Sequence[int] = (3, 3, 4, 5, 6)
) -> None:
    """Run an operator over random trees and schedules; AssertionError with all that is needed to repeat a failure."""
    rng = random.Random(seed)
    carried = 0
    for case in range(cases):
        count = rng.choice(inputs)
        aliases = ALIASES[:count]
        most = {3: 14, 4: 8, 5: 5, 6: 4}.get(count, 20)
        tables = {alias: random_table(rng, rng.choice([0, 1, 2, most // 2, most, most])) for alias in aliases}
        on = random_condition(rng, aliases)
        graph = parse_graph(on, {alias: table.schema for alias, table in tables.items()})
        if operator_class(name, count).refuses(graph) is not None:
            on = " AND ".join(f"a.k = {alias}.k" for alias in aliases[1:])
        else:
            carried += 1
        block_rows = rng.choice([1, 2, 3, 5])
        memory_rows = (count + rng.choice([2, 3, 6, 12])) * block_rows if rng.random() < 0.85 else None
        schedule = random_multi_schedule(rng, {alias: table.num_rows for alias, table in tables.items()})
        check_multi_run(name, tables, on, schedule, memory_rows=memory_rows, block_rows=block_rows, seed=case)
    assert carried, f"{name} refuses every condition"


def check_multi_run(
    name: str, tables: Mapping[str, pa.Table], on: Any, schedule: Iterable[Sequence[Any]], **setting: Any
) -> Run:
    """Simulate one run and compare it with the definition."""
    schedule = list(schedule)
    watched = {key: value for key, value in setting.items() if key != "watch"}
    repeat = f"simulate({name!r}, tables, on={on!r}, schedule={schedule}, **{watched})"
    run = simulate(name, tables, None, on, schedule, **setting)
    expected, found = Counter(multi_definition(tables, on)), Counter(run.tuples)
    assert found == expected, (
        f"{repeat}\nmissing: {sorted((expected - found).elements())[:20]}\n"
        f"too many: {sorted((found - expected).elements())[:20]}\n"
        + "\n".join(f"{alias} = pa.table({table.to_pydict()})" for alias, table in tables.items())
    )
    memory_rows = setting.get("memory_rows")
    if memory_rows is not None:
        assert run.counters.peak_rows_in_memory <= memory_rows, f"{repeat}: over its budget"
    return run


def multi_definition(tables: Mapping[str, Any], on: Any) -> list[tuple[int, ...]]:
    """Cross product + filter: the combinations of row numbers that a join must give, in the order of the inputs."""
    arrow = {alias: arrow_table(table) for alias, table in tables.items()}
    graph = on if isinstance(on, Graph) else parse_graph(on, {a: t.schema for a, t in arrow.items()})
    batches = {alias: one_batch(table, table.schema) for alias, table in arrow.items()}
    rows: dict[str, Rows] = {}
    for alias, batch in batches.items():
        alive = graph.passing(alias, batch)
        mine = np.arange(batch.num_rows) if alive is None else np.flatnonzero(alive)
        pairs = list(product(range(len(next(iter(rows.values())))), mine.tolist())) if rows else [(0, m) for m in mine]
        old = np.array([p for p, _ in pairs], np.int64)
        rows = {a: taken[old] for a, taken in rows.items()}
        rows[alias] = np.array([m for _, m in pairs], np.int64)
        for edge in graph.edges:
            if edge.ends <= set(rows) and alias in edge.ends:
                ends = (edge.left, edge.right)
                (left, right), (left_rows, right_rows) = [batches[a] for a in ends], [rows[a] for a in ends]
                good = matching(edge.condition.conjuncts, left, left_rows, right, right_rows)
                rows = {a: taken[good] for a, taken in rows.items()}
    complete = graph.checked(batches, rows)
    if complete is not None:
        rows = {a: taken[complete] for a, taken in rows.items()}
    return list(zip(*(rows[alias].tolist() for alias in graph.aliases), strict=True))


def random_condition(rng: random.Random, aliases: Sequence[str]) -> str:
    """A tree over the inputs; sometimes one shared attribute, a cycle, a filter, a conjunct over three of them."""
    if rng.random() < 0.2:
        column = rng.choice(["k", "s", "x"])
        return " AND ".join(f"{a}.{column} = {b}.{column}" for a, b in pairwise(aliases))
    shape = rng.choice(["chain", "star", "tree"])
    parts = []
    for i in range(1, len(aliases)):
        parent = {"chain": i - 1, "star": 0, "tree": rng.randrange(i)}[shape]
        ends = [aliases[parent], aliases[i]]
        rng.shuffle(ends)
        parts.append(rng.choice(EDGES).format(*ends))
    if rng.random() < 0.25:
        parts.append(rng.choice(EDGES).format(*rng.sample(aliases, 2)))
    if rng.random() < 0.15:
        parts.append(f"{rng.choice(aliases)}.x > -1")
    if rng.random() < 0.15:
        parts.append("{}.k + {}.k >= {}.k".format(*rng.sample(aliases, 3)))
    rng.shuffle(parts)
    return " AND ".join(parts)


def random_multi_schedule(rng: random.Random, rows: Mapping[str, int]) -> list[tuple[Any, ...]]:
    """Arrivals in random portions, stalls that break off reactive work, early ends, restarts."""
    left = dict(rows)
    schedule: list[tuple[Any, ...]] = []
    while any(left.values()) and rng.random() < 0.97:
        event = rng.random()
        if event < 0.65:
            alias = rng.choice([name for name, count in left.items() if count])
            count = min(left[alias], rng.choice([1, 1, 2, 3, 5, 8]))
            left[alias] -= count
            schedule.append((alias, count))
        elif event < 0.92:
            schedule.append(("stall", rng.choice([1, 1, 2, 3, 7])))
            if rng.random() < 0.3:  # in the middle of reactive work
                schedule.append(("restart",))
        elif event < 0.96:
            schedule.append(("restart",))
        else:
            alias = rng.choice(list(left))
            left[alias] = 0
            schedule.append(("end", alias))
    return schedule
