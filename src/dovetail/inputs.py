"""From what users give as inputs to the inputs of a join in process, and to its plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dovetail.condition import Condition, parse
from dovetail.condition.graph import Graph, parse_graph
from dovetail.core.tables import arrow_table, uses_dictionaries
from dovetail.diag.choice import ScanDiagonals
from dovetail.errors import InputError, PlanError
from dovetail.options import Where
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts, TableSize, plan_join
from dovetail.request import Request, named_inputs
from dovetail.sources.parquet_files import parquet_source
from dovetail.sources.protocol import Local, Scan, TableScan, as_input, as_scan, joined_schema
from dovetail.storage.budget import bytes_of


def plan_tables(request: Request, *, look: bool = False) -> tuple[JoinPlan, tuple[Scan, Scan]]:
    """The plan of a join of tables, and both inputs. Files are looked at: clustered alike, they need not be loaded."""
    left, right = request.input_list
    scans = (scan(left), scan(right))
    condition = parse(request.on, scans[0].schema, scans[1].schema, in_process=True)
    return _plan(request, condition, InputFacts(diagonal=ScanDiagonals(scans, look))), scans


def plan_progressive(request: Request, *, look: bool = False) -> tuple[JoinPlan, tuple[Any, Any]]:
    """The plan of a progressive join, and both inputs: tables, or sources of rows that are still to come."""
    (left, right), workers = request.input_list, request.workers
    inputs = (_source(left), _source(right))
    request.refuse_outside(Where.STEPS if all(isinstance(rows, pa.Table) for rows in inputs) else Where.ARRIVING)
    if workers > 1 and request.algorithm == "diag":
        raise PlanError("diag has one worker only.")
    if left is right and isinstance(inputs[0], Local):
        raise InputError("both sides are the same reader, which can be read only once: give two readers, or a table.")
    schemas = [joined_schema(rows) for rows in inputs]
    condition = parse(request.on, schemas[0], schemas[1], in_process=True)
    scans = both_scans(inputs)
    facts = InputFacts(
        "progressive",
        size=_size(inputs) if workers == 1 else None,  # the part of a worker is not known
        diagonal=None if scans is None else ScanDiagonals(scans, look),
    )
    return _plan(request, condition, facts), inputs


def plan_ordered(request: Request) -> tuple[JoinPlan, tuple[Scan, Scan]]:
    """The plan of a progressive join whose results come in order, and both inputs, which are at rest."""
    left, right = request.input_list
    scans = both_scans((_source(left), _source(right)))
    if scans is None:
        raise PlanError(
            "order_by needs tables or Parquet files: of rows that are still to come, the first may come last. Read "
            "them into tables, or sort the results."
        )
    return plan_join(parse(request.on, scans[0].schema, scans[1].schema, in_process=True), request.how), scans


def plan_several(request: Request) -> tuple[JoinPlan, Mapping[str, Any]]:
    """The plan of a join of several inputs, and the inputs: sources where rows are still to come, tables and files."""
    inputs = named_inputs(request.inputs)
    if request.call == "progressive":
        found: Mapping[str, Any] = {alias: _source(rows) for alias, rows in inputs.items()}
        readers = [id(inputs[alias]) for alias, rows in found.items() if isinstance(rows, Local)]
        if len(set(readers)) < len(readers):
            raise InputError(
                "two inputs are the same reader, which can be read only once: give two readers, or a table."
            )
        facts, schemas = InputFacts("progressive"), {alias: joined_schema(rows) for alias, rows in found.items()}
    else:
        scans = {alias: scan(rows) for alias, rows in inputs.items()}
        schemas = {alias: rows.schema for alias, rows in scans.items()}
        size = [(rows.rows, rows.total_bytes()) for rows in scans.values()]
        found, facts = scans, InputFacts(size=TableSize(*map(sum, zip(*size, strict=True))))
    return _plan(request, parse_graph(request.on, schemas), facts), found


def _plan(request: Request, joined: Condition | Graph, facts: InputFacts) -> JoinPlan:
    return plan_join(
        joined,
        request.how,
        facts,
        algorithm=request.algorithm,
        memory_bytes=bytes_of(request.memory),
        parameters={**request.parameters, **request.diagonal},
    )


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


def _source(rows: Any) -> Any:
    """A table where the rows are at rest, a source where they are in files or still to come."""
    return parquet_source(rows) or as_input(rows)


def scan(rows: Any) -> Scan:
    """Tables, and Parquet files by path or as a dataset."""
    if isinstance(rows, pa.Table):  # told from a protocol fast
        return TableScan(arrow_table(rows))
    if isinstance(rows, Scan):
        return rows
    return parquet_source(rows) or TableScan(arrow_table(rows))
