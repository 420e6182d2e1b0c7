"""The laboratory for several inputs: one operator, a scripted schedule, no clock but the operator's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.condition.graph import parse_graph
from dovetail.core.metrics import Counters
from dovetail.core.rows import ArrivalOf, EndOf, MultiEvent, Phase, Stall, Tuples, one_batch
from dovetail.core.tables import arrow_table
from dovetail.errors import InputError, PlanError
from dovetail.execution.driver import Found
from dovetail.execution.multi_driver import MultiDriver
from dovetail.operators.multi import MultiOperator, MultiWorkspace
from dovetail.operators.protocol import Manifest
from dovetail.operators.registry import check_parameters, multi_operator_class
from dovetail.simulation.laboratory import ROW, Restart
from dovetail.storage.blocks import BlockStore
from dovetail.storage.budget import Budget


@dataclass(slots=True)
class MultiRun:
    """What happened, result by result."""

    aliases: tuple[str, ...]
    tuples: list[tuple[int, ...]] = field(default_factory=list)  # row numbers in the order of the inputs, as emitted
    phases: list[Phase] = field(default_factory=list)  # in which each result was emitted
    online: int = 0  # results emitted up to the last arrival
    counters: Counters = field(default_factory=Counters)

    def add(self, found: Found[Tuples]) -> None:
        batches, rows = found.results
        numbers = [np.asarray(batches[a].column(ROW))[rows[a]].tolist() for a in self.aliases]
        self.tuples.extend(zip(*numbers, strict=True))
        self.phases.extend([found.phase] * found.results.size)


def simulate_multi(
    operator: str,
    inputs: Mapping[str, Any],
    on: Any,
    schedule: Iterable[Sequence[Any]] = (),
    *,
    memory_rows: int | None = None,
    block_rows: int = 50,
    seed: int = 0,
    watch: Callable[[MultiOperator], None] | None = None,
    **parameters: Any,
) -> MultiRun:
    """Run an operator of several inputs on a script and tell which results it emitted, when, and at what cost.

    A schedule is a list of
        ("o", 3)         so many rows of the input called o arrive
        ("stall", 4)     nothing arrives while react() yields four times
        ("end", "o")     an input ends; rows it has left arrive first
        ("restart",)     the operator is snapshotted, dropped and restored
    What is left arrives at the end, a row of each input in turn. `watch` sees the operator after every event.
    """
    tables = {alias: arrow_table(table) for alias, table in inputs.items()}
    tables = {a: t.append_column(ROW, pa.array(np.arange(t.num_rows))) for a, t in tables.items()}
    if (memory_rows is not None and memory_rows < 1) or block_rows < 1:
        raise InputError(f"memory_rows and block_rows must be positive; got {memory_rows} and {block_rows}.")
    graph = parse_graph(on, {alias: table.schema for alias, table in tables.items()})
    kind = multi_operator_class(operator)
    if (reason := kind.refuses(graph)) is not None:
        raise PlanError(f"{operator} cannot run {graph.text}: {reason}.")
    check_parameters(kind, parameters)
    run = MultiRun(graph.aliases)
    blocks = BlockStore(counters=run.counters)

    def workspace() -> MultiWorkspace:
        budget = Budget(memory_rows, "rows", run.counters)
        return MultiWorkspace(graph, budget, blocks, block_rows, run.counters, seed, dict(parameters))

    try:
        events = list(events_of(schedule, tables))
        last_arrival = max((i for i, e in enumerate(events) if isinstance(e, ArrivalOf)), default=-1)
        space = workspace()
        driver = MultiDriver(kind(space), space)
        for i, event in enumerate(events):
            if isinstance(event, Restart):
                manifest = driver.operator.snapshot()
                manifest = Manifest(manifest.version, json.loads(json.dumps(manifest.state)), manifest.segments)
                space = workspace()
                driver = driver.restarted(kind(space), space)
                driver.operator.restore(manifest)
            else:
                for found in driver.handle(event):
                    run.add(found)
            if watch is not None:
                watch(driver.operator)
            if i == last_arrival:
                run.online = len(run.tuples)
    finally:
        blocks.close()
    return run


def events_of(schedule: Iterable[Sequence[Any]], tables: Mapping[str, pa.Table]) -> Iterator[MultiEvent | Restart]:
    """The script as events; every row arrives and every input ends."""
    rows = {alias: one_batch(table.combine_chunks(), table.schema) for alias, table in tables.items()}
    position = dict.fromkeys(tables, 0)
    ended = dict.fromkeys(tables, False)

    def take(alias: str, count: int) -> Iterator[ArrivalOf]:
        count = min(count, tables[alias].num_rows - position[alias])
        if count > 0:
            yield ArrivalOf(alias, rows[alias].slice(position[alias], count))
            position[alias] += count

    for entry in schedule:
        match list(entry):
            case ["stall", int(steps)]:
                if steps > 0:
                    yield Stall(steps)
            case ["end", str(alias)] if alias in tables:
                if not ended[alias]:
                    yield from take(alias, tables[alias].num_rows)
                    ended[alias] = True
                    yield EndOf(alias)
            case ["restart"]:
                yield Restart()
            case [str(alias), int(count)] if alias in tables:
                if ended[alias] and count:
                    raise InputError(f"the schedule lets rows of {alias!r} arrive after its end.")
                yield from take(alias, count)
            case other:
                raise InputError(
                    f"{tuple(other)!r} is not an entry of a schedule. Entries are (alias, rows), ('stall', steps), "
                    f"('end', alias) and ('restart',); aliases are {', '.join(tables)}."
                )
    while any(position[alias] < table.num_rows for alias, table in tables.items()):
        for alias in tables:
            yield from take(alias, 1)
    for alias in tables:
        if not ended[alias]:
            yield EndOf(alias)
