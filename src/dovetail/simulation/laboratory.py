"""The laboratory: one operator, a scripted schedule, no clock but the operator's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.condition import Condition, parse
from dovetail.core.metrics import Counters
from dovetail.core.rows import Alone, Arrival, End, Event, Pairs, Phase, Results, Side, Stall, Watermark
from dovetail.core.tables import arrow_table
from dovetail.errors import InputError, PlanError
from dovetail.execution.driver import Driver, Found
from dovetail.operators.protocol import JoinOperator, Manifest, Workspace
from dovetail.operators.registry import check_join_type, check_parameters, operator_class
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget

ROW = "__row"  # the extra column that carries each row's number through the operator

SIDES = {"l": Side.LEFT, "left": Side.LEFT, "r": Side.RIGHT, "right": Side.RIGHT}


@dataclass(frozen=True, slots=True)
class Restart:
    """The operator is thrown away and a new one goes on from its snapshot."""


@dataclass(slots=True)
class Run:
    """What happened, pair by pair."""

    pairs: list[tuple[int, int]] = field(default_factory=list)  # (left row number, right row number), as emitted
    phases: list[Phase] = field(default_factory=list)  # in which each pair was emitted
    alone: list[tuple[Side, int]] = field(default_factory=list)  # rows that are results by themselves
    online: int = 0  # pairs emitted up to the last arrival
    counters: Counters = field(default_factory=Counters)

    def add(self, found: Found[Results]) -> None:
        match found.results:
            case Pairs(left, left_rows, right, right_rows):
                lefts, rights = np.asarray(left.column(ROW))[left_rows], np.asarray(right.column(ROW))[right_rows]
                self.pairs.extend(zip(lefts.tolist(), rights.tolist(), strict=True))
                self.phases.extend([found.phase] * len(left_rows))
            case Alone(side, batch, rows):
                self.alone.extend((side, row) for row in np.asarray(batch.column(ROW))[rows].tolist())


def simulate(
    operator: str,
    left: Any,
    right: Any,
    on: Any,
    schedule: Iterable[Sequence[Any]] = (),
    *,
    memory_rows: int | None = None,
    block_rows: int = 50,
    seed: int = 0,
    **parameters: Any,
) -> Run:
    """Run an operator on a script and tell which pairs it emitted, when, and at what cost.

    A schedule is a list of
        ("l", 3)  ("r", 2)    so many rows of that side arrive
        ("stall", 4)          nothing arrives while react() yields four times
        ("end", "l")          a source ends; rows it has left arrive first
        ("restart",)          the operator is snapshotted, dropped and restored
    What is left arrives at the end, a row of each side in turn.
    """
    tables = tuple(_numbered(arrow_table(table)) for table in (left, right))
    if (memory_rows is not None and memory_rows < 1) or block_rows < 1:
        raise InputError(f"memory_rows and block_rows must be positive; got {memory_rows} and {block_rows}.")
    condition = parse(on, tables[0].schema, tables[1].schema, in_process=True)
    kind = operator_for(operator, condition)
    check_join_type(operator, parameters.get("how", "inner"))
    check_parameters(kind, {name: value for name, value in parameters.items() if name != "how"})
    run = Run()
    blocks = BlockStore(counters=run.counters)

    def workspace() -> Workspace:
        budget = Budget(memory_rows, "rows", run.counters)
        return Workspace(condition, budget, blocks, block_rows, run.counters, seed, dict(parameters))

    try:
        events = list(_events(schedule, tables))
        last_arrival = max((i for i, e in enumerate(events) if isinstance(e, Arrival)), default=-1)
        space = workspace()
        driver = Driver(kind(space), space)
        for i, event in enumerate(events):
            if isinstance(event, Restart):
                manifest = _through_json(driver.operator.snapshot())
                driver = _restarted(driver, kind, workspace(), manifest)
                continue
            for found in driver.handle(event):
                run.add(found)
            if i == last_arrival:
                run.online = len(run.pairs)
    finally:
        blocks.close()
    return run


def operator_for(name: str, condition: Condition) -> type[JoinOperator]:
    """The operator of that name, unless it cannot run the condition."""
    kind = operator_class(name)
    if (reason := kind.refuses(condition)) is not None:
        raise PlanError(f"{name} cannot run {condition.text}: {reason}.")
    return kind


def _events(schedule: Iterable[Sequence[Any]], tables: Sequence[pa.Table]) -> Iterator[Event | Restart]:
    """The script as events; every row arrives and every side ends."""
    whole = [table.combine_chunks().to_batches() for table in tables]
    rows = [batches[0] if batches else None for batches in whole]
    position = [0, 0]
    ended = [False, False]

    def take(side: Side, count: int) -> Iterator[Arrival]:
        count = min(count, tables[side].num_rows - position[side])
        batch = rows[side]
        if count > 0 and batch is not None:
            yield Arrival(side, batch.slice(position[side], count))
            position[side] += count

    for entry in schedule:
        match list(entry):
            case [str(name), int(count)] if name in SIDES:
                if ended[SIDES[name]] and count:
                    raise InputError(f"the schedule lets rows of {name!r} arrive after its end.")
                yield from take(SIDES[name], count)
            case ["stall", int(steps)]:
                if steps > 0:
                    yield Stall(steps)
            case ["watermark", int(value)]:
                yield Watermark(value)
            case ["end", str(name)] if name in SIDES:
                side = SIDES[name]
                if not ended[side]:
                    yield from take(side, tables[side].num_rows)
                    ended[side] = True
                    yield End(side)
            case ["restart"]:
                yield Restart()
            case other:
                raise InputError(
                    f"{tuple(other)!r} is not an entry of a schedule. Entries are ('l', rows), ('r', rows), "
                    "('stall', steps), ('end', 'l'), ('watermark', value) and ('restart',)."
                )
    while any(position[side] < tables[side].num_rows for side in Side):
        for side in Side:
            yield from take(side, 1)
    for side in Side:
        if not ended[side]:
            yield End(side)


def _restarted(driver: Driver, kind: type[JoinOperator], workspace: Workspace, manifest: Manifest) -> Driver:
    operator = kind(workspace)
    operator.restore(manifest)
    return driver.restarted(operator, workspace)


def _through_json(manifest: Manifest) -> Manifest:
    """As another process would see it."""
    return Manifest(manifest.version, json.loads(json.dumps(manifest.state)), manifest.segments)


def _numbered(table: pa.Table) -> pa.Table:
    return table.append_column(ROW, pa.array(np.arange(table.num_rows)))
