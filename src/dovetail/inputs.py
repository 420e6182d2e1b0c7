"""From what users give as inputs to the inputs of a join in process, and to its plan."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dovetail.condition import On, parse
from dovetail.condition.graph import parse_graph
from dovetail.core.tables import arrow_table, uses_dictionaries
from dovetail.diag.choice import ScanDiagonals
from dovetail.errors import InputError, PlanError
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts, TableSize, plan_join
from dovetail.sources.parquet_files import parquet_source
from dovetail.sources.protocol import Local, Scan, TableScan, as_input, as_scan, joined_schema
from dovetail.storage.budget import parse_bytes

FEWEST = 3  # inputs of a join of several


def plan_tables(
    left: Any,
    right: Any,
    on: On,
    how: str,
    memory: str | int | None,
    algorithm: str,
    options: dict[str, Any],
    *,
    look: bool = False,
) -> tuple[JoinPlan, tuple[Scan, Scan]]:
    """The plan of a join of tables, and both inputs. Files are looked at: clustered alike, they need not be loaded."""
    scans = (scan(left), scan(right))
    condition = parse(on, scans[0].schema, scans[1].schema, in_process=True)
    facts = InputFacts(diagonal=ScanDiagonals(scans, look))
    plan = plan_join(condition, how, facts, algorithm=algorithm, memory_bytes=bytes_of(memory), parameters=options)
    return plan, scans


def plan_progressive(
    left: Any,
    right: Any,
    on: On,
    how: str,
    memory: str | int | None,
    algorithm: str,
    workers: int,
    options: dict[str, Any],
    *,
    look: bool = False,
) -> tuple[JoinPlan, tuple[Any, Any]]:
    """The plan of a progressive join, and both inputs: tables, or sources of rows that are still to come."""
    if workers < 1:
        raise InputError(f"workers must be 1 or more; got {workers}.")
    if workers > 1 and algorithm == "diag":
        raise PlanError("diag has one worker only.")
    inputs = (parquet_source(left) or as_input(left), parquet_source(right) or as_input(right))
    if left is right and isinstance(inputs[0], Local):
        raise InputError("both sides are the same reader, which can be read only once: give two readers, or a table.")
    schemas = [joined_schema(rows) for rows in inputs]
    condition = parse(on, schemas[0], schemas[1], in_process=True)
    scans = both_scans(inputs)
    facts = InputFacts(
        "progressive",
        size=_size(inputs) if workers == 1 else None,  # the part of a worker is not known
        diagonal=None if scans is None else ScanDiagonals(scans, look),
    )
    plan = plan_join(condition, how, facts, algorithm=algorithm, memory_bytes=bytes_of(memory), parameters=options)
    return plan, inputs


def plan_ordered(
    left: Any, right: Any, on: On, how: str, algorithm: str, options: Mapping[str, Any]
) -> tuple[JoinPlan, tuple[Scan, Scan]]:
    """The plan of a progressive join whose results come in order, and both inputs, which are at rest."""
    if algorithm != "auto" or options:
        given = ", ".join(options) or f"algorithm={algorithm!r}"
        raise PlanError(f"{given}: not for results in order, which kernels find block by block. Leave it out.")
    scans = both_scans((parquet_source(left) or as_input(left), parquet_source(right) or as_input(right)))
    if scans is None:
        raise PlanError(
            "order_by needs tables or Parquet files: of rows that are still to come, the first may come last. Read "
            "them into tables, or sort the results."
        )
    condition = parse(on, scans[0].schema, scans[1].schema, in_process=True)
    return plan_join(condition, how), scans


def plan_several(
    inputs: Mapping[str, Any],
    on: str | Sequence[str],
    how: str,
    facts: InputFacts,
    memory: str | int | None,
    algorithm: str,
    options: Mapping[str, Any],
) -> tuple[JoinPlan, Mapping[str, Any]]:
    """The plan of a join of several inputs, and the inputs: sources where rows are still to come, tables and files."""
    if facts.kind == "progressive":
        found: Mapping[str, Any] = {alias: parquet_source(rows) or as_input(rows) for alias, rows in inputs.items()}
        readers = [id(inputs[alias]) for alias, rows in found.items() if isinstance(rows, Local)]
        if len(set(readers)) < len(readers):
            raise InputError(
                "two inputs are the same reader, which can be read only once: give two readers, or a table."
            )
        schemas = {alias: joined_schema(rows) for alias, rows in found.items()}
    else:
        scans = {alias: scan(rows) for alias, rows in inputs.items()}
        schemas = {alias: rows.schema for alias, rows in scans.items()}
        size = [(rows.rows, rows.total_bytes()) for rows in scans.values()]
        found, facts = scans, replace(facts, size=TableSize(*map(sum, zip(*size, strict=True))))
    graph = parse_graph(on, schemas)
    return plan_join(graph, how, facts, algorithm=algorithm, memory_bytes=bytes_of(memory), parameters=options), found


def named_inputs(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Several inputs by names that a condition can use."""
    if not isinstance(inputs, Mapping):
        raise InputError(f"the inputs are a dictionary of names and tables; got {type(inputs).__name__}.")
    if len(inputs) < FEWEST:
        raise InputError(
            f"a join of several inputs takes {FEWEST} and more; got {len(inputs)}. For two: dovetail.join."
        )
    for alias in inputs:
        if not re.fullmatch(r"[A-Za-z_]\w*", str(alias)):
            raise InputError(f"{alias!r} cannot be the name of an input: use letters, digits and underscores.")
    if len({alias.casefold() for alias in inputs}) < len(inputs):
        raise InputError(f"names of inputs differ in case only: {', '.join(inputs)}.")
    return inputs


def both_scans(inputs: tuple[Any, Any]) -> tuple[Scan, Scan] | None:
    """Both inputs, if they are at rest."""
    left, right = as_scan(inputs[0]), as_scan(inputs[1])
    return None if left is None or right is None else (left, right)


def _size(inputs: tuple[Any, Any]) -> TableSize | None:
    """What both tables take in memory; None, if rows are still to come, or copies of them may take more: every batch
    of rows has a dictionary for itself."""
    if not all(isinstance(rows, pa.Table) and not any(map(uses_dictionaries, rows.schema.types)) for rows in inputs):
        return None
    return TableSize(sum(rows.num_rows for rows in inputs), sum(rows.nbytes for rows in inputs))


def bytes_of(memory: str | int | None) -> int | None:
    return None if memory is None else parse_bytes(memory)


def scan(rows: Any) -> Scan:
    """Tables, and Parquet files by path or as a dataset."""
    if isinstance(rows, pa.Table):  # told from a protocol fast
        return TableScan(arrow_table(rows))
    if isinstance(rows, Scan):
        return rows
    return parquet_source(rows) or TableScan(arrow_table(rows))
