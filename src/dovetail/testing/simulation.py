"""Runs one operator on a scripted schedule: no clock, no threads, every run reproducible."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.columns.batches import one_batch
from dovetail.condition import Condition, parse
from dovetail.condition.graph import Graph, parse_graph
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Counters
from dovetail.core.rows import Arrival, End, Event, Matches, Phase, Side, Stall, Watermark
from dovetail.core.tables import arrow_table
from dovetail.errors import InputError, StateError
from dovetail.execution.driver import Driver, Found
from dovetail.operators.protocol import JoinOperator, Manifest, Workspace
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import plan_operator
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

ROW = "__row"  # the extra column that carries each row's number through the operator

SIDES = {"l": Side.LEFT, "left": Side.LEFT, "r": Side.RIGHT, "right": Side.RIGHT}


@dataclass(frozen=True, slots=True)
class Restart:
    """Drops the operator, and restores a new one from its snapshot."""


@dataclass(slots=True)
class ScriptedRun:
    """The outcome, result by result. `tuples` have row numbers in the order of the inputs, in the order of emission."""

    tuples: list[tuple[int, ...]] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)  # the phase of each result
    alone: list[tuple[int, int]] = field(default_factory=list)  # rows that are results alone: input, row number
    online: int = 0  # results emitted up to the last arrival
    counters: Counters = field(default_factory=Counters)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The results of a join of two inputs: (left row number, right row number)."""
        return self.tuples  # type: ignore[return-value]  # two inputs give two numbers

    def add(self, found: Found) -> None:
        """Record results."""
        results: Matches = found.results
        numbers = [
            np.asarray(batch.column(ROW))[rows].tolist()
            for batch, rows in zip(results.batches, results.rows, strict=True)
            if batch is not None
        ]
        if results.is_complete:
            self.tuples.extend(zip(*numbers, strict=True))
            self.phases.extend([found.phase] * results.size)
        else:
            (number,) = (n for n, rows in enumerate(results.rows) if rows is not None)
            self.alone.extend((number, row) for row in numbers[0])


def simulate(
    operator: str,
    left: Any,
    right: Any = None,
    on: Any = None,
    schedule: Iterable[Sequence[Any]] = (),
    *,
    memory_rows: int | None = None,
    block_rows: int = 50,
    seed: int = 0,
    watch: Callable[[JoinOperator], None] | None = None,
    **parameters: Any,
) -> ScriptedRun:
    """Run an operator on a schedule and report its results, their phases, and the cost.

    A schedule is a list of
        ("l", 3)  ("r", 2)    this number of rows arrives; inputs of a mapping go by their names
        ("stall", 4)          nothing arrives while react() yields four times
        ("end", "l")          an input ends; rows it has left arrive first
        ("watermark", 100)    nothing older arrives any more
        ("restart",)          the operator is snapshotted, dropped and restored
    Remaining rows arrive at the end, one row of each input in turn.

    Args:
        The name of an algorithm.

    Returns:
        The results as `pairs` of row numbers (`tuples` of more inputs), `phases` and `counters`.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> left, right = pa.table({"k": [1, 2, 3]}), pa.table({"k": [3, 1]})
        >>> run = dovetail.testing.simulate("xjoin", left, right, "l.k = r.k", [("l", 3), ("stall", 4), ("r", 2)])
        >>> sorted(run.pairs), run.counters.results
        ([(0, 1), (2, 0)], 2)
    """
    if (memory_rows is not None and memory_rows < 1) or block_rows < 1:
        raise InputError(f"memory_rows and block_rows must be positive; got {memory_rows} and {block_rows}.")
    tables = {alias: _number_rows(table) for alias, table in name_inputs(left, right).items()}
    graph = bind_condition(on, {alias: table.schema for alias, table in tables.items()})
    names = SIDES if _are_two_sides(tables) else {alias: number for number, alias in enumerate(tables)}
    plan = plan_operator(operator, graph, parameters.pop("how", JoinType.INNER), parameters)
    run = ScriptedRun()

    def workspace() -> Workspace:
        budget, blocks = Budget(memory_rows, "rows", run.counters), BlockStore(counters=run.counters)
        return Workspace.of(plan, budget, blocks, block_rows, run.counters, seed=seed)

    space = workspace()
    try:
        events = list(_events(schedule, list(tables.values()), names))
        last_arrival = max((i for i, e in enumerate(events) if isinstance(e, Arrival)), default=-1)
        driver, version = Driver(plan.make_operator(space), space), 0
        for i, event in enumerate(events):
            if isinstance(event, Restart):
                manifest = driver.operator.snapshot()
                _check_manifest(driver.operator, manifest, version)
                space, before, version = workspace(), space, manifest.version
                driver = driver.restart(_restore(plan, manifest, space, before), space)
                before.blocks.close()
            else:
                for found in driver.handle(event):
                    run.add(found)
            if watch is not None:
                watch(driver.operator)
            if i == last_arrival:
                run.online = len(run.tuples)
    finally:
        space.blocks.close()
    return run


def name_inputs(left: Any, right: Any = None) -> dict[str, pa.Table]:
    """The inputs by the names used in conditions: those of a mapping, or l and r."""
    inputs = left if isinstance(left, Mapping) else {"l": left, "r": right}
    return {alias: arrow_table(table) for alias, table in inputs.items()}


def bind_condition(on: Any, schemas: Mapping[str, pa.Schema]) -> Graph:
    """The condition on two sides, l and r, or on named inputs."""
    if isinstance(on, Condition):
        return Graph.of(on)
    if _are_two_sides(schemas):
        return Graph.of(parse(on, schemas["l"], schemas["r"], in_process=True))
    return parse_graph(on, schemas)


def _are_two_sides(inputs: Mapping[str, Any]) -> bool:
    return tuple(inputs) == tuple(side.alias for side in Side)


def _events(
    schedule: Iterable[Sequence[Any]], tables: Sequence[pa.Table], names: Mapping[str, int]
) -> Iterator[Event | Restart]:
    """The script as events; in the end every row has arrived and every input has ended."""
    rows = [one_batch(table.combine_chunks(), table.schema) for table in tables]
    position, ended = [0] * len(tables), [False] * len(tables)

    def take(number: int, count: int) -> Iterator[Arrival]:
        count = min(count, tables[number].num_rows - position[number])
        if count > 0:
            yield Arrival(number, rows[number].slice(position[number], count))
            position[number] += count

    for entry in schedule:
        match list(entry):
            case ["stall", int(steps)]:
                if steps > 0:
                    yield Stall(steps)
            case ["watermark", int(value)]:
                yield Watermark(value)
            case ["end", str(name)] if name in names:
                number = names[name]
                if not ended[number]:
                    yield from take(number, tables[number].num_rows)
                    ended[number] = True
                    yield End(number)
            case ["restart"]:
                yield Restart()
            case [str(name), int(count)] if name in names:
                if ended[names[name]] and count:
                    raise InputError(f"the schedule lets rows of {name!r} arrive after its end.")
                yield from take(names[name], count)
            case other:
                first, second = ("l", "r") if names is SIDES else (next(iter(names)), list(names)[-1])
                raise InputError(
                    f"{tuple(other)!r} is not an entry of a schedule. Entries are ({first!r}, rows), "
                    f"({second!r}, rows), ('stall', steps), ('end', {first!r}), ('watermark', value) and ('restart',)."
                )
    while any(position[number] < table.num_rows for number, table in enumerate(tables)):
        for number in range(len(tables)):
            yield from take(number, 1)
    for number in range(len(tables)):
        if not ended[number]:
            yield End(number)


def _check_manifest(operator: JoinOperator, manifest: Manifest, version: int) -> None:
    """Check what a runtime relies on and results do not show."""
    if manifest.version <= version:
        name = operator.spec.name
        raise StateError(f"{name} counts its snapshots wrongly: {manifest.version} comes after {version}.")


def _restore(plan: JoinPlan, manifest: Manifest, workspace: Workspace, before: Workspace) -> JoinOperator:
    """A new operator that gets only what another process would see of the snapshot: JSON and the segments it names."""
    for name in manifest.segments:
        os.link(before.blocks.directory / name, workspace.blocks.directory / name)
    operator = plan.make_operator(workspace)
    operator.restore(Manifest(manifest.version, json.loads(json.dumps(manifest.state)), manifest.segments))
    return operator


def _number_rows(table: pa.Table) -> pa.Table:
    return table.append_column(ROW, pa.array(np.arange(table.num_rows)))
