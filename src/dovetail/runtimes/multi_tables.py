"""Joins of several tables in process: Arrow in, Arrow out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from dovetail.batch import take_columns
from dovetail.condition.graph import Graph
from dovetail.errors import InputError
from dovetail.metrics import Counters
from dovetail.operators import multi_operator_class
from dovetail.operators.multi import MultiWorkspace
from dovetail.runtimes.embedded import BATCH_ROWS, STREAM_ROWS
from dovetail.runtimes.multi_at_rest import PIECE, filtered, join_all_at_rest
from dovetail.runtimes.multi_driver import MultiDriver
from dovetail.runtimes.output import MOST_BYTES, fitting_rows
from dovetail.state.blocks import BlockStore
from dovetail.state.budget import Budget
from dovetail.tuples import ArrivalOf, EndOf, MultiEvent, Tuples

FEWEST = 1 << 12  # partial results at a time, however small the memory
MERGING = ("pmj",)  # algorithms that keep all inputs anyway, and find the more the more inputs there are in a run
ENTRY_BYTES = 64  # of a partial result and input: row numbers before and after, pairs, orders


def multi_schema(schemas: Mapping[str, pa.Schema], fold_case: bool = False) -> pa.Schema:
    """The columns of all inputs in their order; a name that several inputs have becomes alias_name.

    With `fold_case`, names that differ in case only are the same name.
    """
    fold = str.casefold if fold_case else str
    times = Counter(fold(name) for schema in schemas.values() for name in schema.names)
    fields = [
        field.with_name(f"{alias}_{field.name}" if times[fold(field.name)] > 1 else field.name)
        for alias, schema in schemas.items()
        for field in schema
    ]
    again = [name for name, count in Counter(fold(field.name) for field in fields).items() if count > 1]
    if again:
        raise InputError(f"the result would have several columns called {', '.join(again)}: rename one of them.")
    return pa.schema(fields)


def join_several(
    graph: Graph,
    tables: Mapping[str, pa.Table],
    schema: pa.Schema,
    algorithm: str,
    memory_bytes: int | None,
    parameters: Mapping[str, Any] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The whole join: by kernels that see all inputs complete, or by an operator of several inputs."""
    if algorithm == "auto":
        most = PIECE
        if memory_bytes is not None:
            most = min(PIECE, max(FEWEST, memory_bytes // (ENTRY_BYTES * len(tables))))
        found = join_all_at_rest(graph, filtered(graph, tables), most)
    else:
        found = _driven(graph, tables, algorithm, memory_bytes, parameters or {})
    for tuples in found:
        yield from tuple_batches(tuples, graph, schema)


def tuple_batches(
    tuples: Tuples, graph: Graph, schema: pa.Schema, most_bytes: int = MOST_BYTES
) -> Iterator[pa.RecordBatch]:
    """Results as rows of the output schema, in bounded batches. Columns that an operator added are left out."""
    batches = {alias: tuples.batches[alias].select(range(len(graph.schemas[alias]))) for alias in graph.aliases}
    most = fitting_rows(*batches.values(), most_bytes=most_bytes)
    for start in range(0, tuples.size, most):
        columns = [
            column
            for alias in graph.aliases
            for column in take_columns(batches[alias], tuples.rows[alias][start : start + most])
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _driven(
    graph: Graph,
    tables: Mapping[str, pa.Table],
    algorithm: str,
    memory_bytes: int | None,
    parameters: Mapping[str, Any],
) -> Iterator[Tuples]:
    counters = Counters()
    blocks = BlockStore(counters=counters)
    budget = Budget(memory_bytes, "bytes", counters)
    workspace = MultiWorkspace(graph, budget, blocks, BATCH_ROWS, counters, parameters=dict(parameters))
    try:
        driver = MultiDriver(multi_operator_class(algorithm)(workspace), workspace)
        arrivals = _in_turn if algorithm in MERGING else _one_after_the_other
        for _, tuples in driver.run(arrivals(tables)):
            if tuples.size:
                yield tuples
    finally:
        blocks.close()


def _one_after_the_other(tables: Mapping[str, pa.Table]) -> Iterator[MultiEvent]:
    """Smaller inputs come first, so that only they have to be kept."""
    for alias in sorted(tables, key=lambda a: tables[a].nbytes):
        for batch in tables[alias].to_batches():
            yield ArrivalOf(alias, batch)
        yield EndOf(alias)


def _in_turn(tables: Mapping[str, pa.Table]) -> Iterator[MultiEvent]:
    """Batches of all inputs in proportion to their sizes, so that they end at about the same time."""
    most = max(1, *(table.num_rows for table in tables.values()))
    sizes = {alias: max(1, table.num_rows * STREAM_ROWS // most) for alias, table in tables.items()}
    batches = {alias: iter(table.to_batches(max_chunksize=sizes[alias])) for alias, table in tables.items()}
    while batches:
        for alias in list(batches):
            batch = next(batches[alias], None)
            if batch is None:
                del batches[alias]
                yield EndOf(alias)
            else:
                yield ArrivalOf(alias, batch)
