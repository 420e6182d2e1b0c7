"""Turns what users pass as inputs into the inputs of a join in process, and plans the join."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from dovetail.condition import Condition, parse
from dovetail.condition.best import Best, Ties, parse_best
from dovetail.condition.graph import Graph, parse_graph
from dovetail.condition.spellings import spell_asof, spell_nearest
from dovetail.core.rows import Side
from dovetail.core.tables import arrow_table, collected, uses_dictionaries
from dovetail.diag.choice import ScanDiagonals
from dovetail.errors import InputError, PlanError
from dovetail.execution.chosen_columns import ChosenColumns
from dovetail.execution.output import output_schema
from dovetail.options import Where
from dovetail.planning.best import check_best, plan_best
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts, TableSize, plan_join
from dovetail.planning.statistics import read_columns
from dovetail.request import Request, named_inputs
from dovetail.sources.parquet_files import ParquetSource, file_rows
from dovetail.sources.protocol import Local, Scan, TableScan, as_input, as_scan, joined_schema
from dovetail.storage.budget import bytes_of


@dataclass(frozen=True, slots=True)
class PlannedTables:
    """A join of tables before it runs."""

    plan: JoinPlan
    scans: tuple[Scan, Scan]
    schema: pa.Schema  # of the joined rows
    drop: tuple[int, int] = (0, 0)  # columns at the end of each side that these rows do not have
    names: tuple[str, ...] | None = None  # of the wanted columns, if not all are wanted

    def chosen(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Select the wanted columns."""
        if self.names is None or list(self.names) == self.schema.names:
            return batches
        names = list(self.names)
        return (batch.select(names) for batch in batches)


def plan_tables(request: Request, *, look: bool = False) -> tuple[JoinPlan, tuple[Scan, Scan]]:
    """The plan of a join of tables, and both inputs. Files are checked first: if clustered alike, they are not
    loaded.
    """
    left, right = request.input_list
    scans = (scan(left), scan(right))
    schemas = (scans[0].schema, scans[1].schema)
    if (asked := asked_best(request, schemas)) is not None:
        on, best = asked
        condition = parse(on, *schemas, in_process=True)
        return plan_best(condition, request.how, best, bytes_of(request.memory)), scans
    condition = parse(request.on, *schemas, in_process=True)
    return _plan(request, condition, InputFacts(diagonal=ScanDiagonals(scans, look))), scans


def choose_tables(
    request: Request,
    plan: JoinPlan,
    scans: tuple[Scan, Scan],
    suffix: str,
    names: Sequence[str] | None,
    *,
    look: bool = False,
) -> PlannedTables:
    """The join of these columns only, by their names in joined rows. None: all columns."""
    condition = plan.condition
    schema = output_schema(*condition.schemas, suffix, plan.how)
    if names is not None and not names:
        raise InputError("columns= names no column. To count the rows, use dovetail.count.")
    if names is None or plan.best is not None:  # the best partners are chosen among whole rows
        return PlannedTables(plan, scans, schema, names=None if names is None else tuple(names))
    read = (read_columns(condition, Side.LEFT), read_columns(condition, Side.RIGHT))
    chosen = ChosenColumns.choose(names, schema, condition.schemas, read)
    scans = (_selected(scans[0], chosen.all[0]), _selected(scans[1], chosen.all[1]))
    condition = replace(condition, schemas=(scans[0].schema, scans[1].schema))
    plan = _plan(request, condition, InputFacts(diagonal=ScanDiagonals(scans, look)))
    dropped = plan.at_rest and plan.diagonal is None
    drop, schema = chosen.drop if dropped else (0, 0), chosen.schema(dropped=dropped)
    return PlannedTables(replace(plan, columns=chosen.summary), scans, schema, drop, chosen.names)


ANY: Ties = "any"


def asked_best(
    request: Request, schemas: tuple[pa.Schema, pa.Schema], zone: str | None = None, *, in_process: bool = True
) -> tuple[Any, Best] | None:
    """The condition, and which of the matching partners are results. None: all of them.

    The only place that defines what `top=`, `asof` and `nearest` mean, also on Spark.
    """
    trusted = not in_process and request.trusted
    if request.call == "asof":
        check_best(request.how)
        spelled = spell_asof(schemas, request.on, request.by, request.direction, request.tolerance, request.exact)
        top, ties = 1, ANY
    elif request.call == "nearest":
        check_best(request.how)
        spelled = spell_nearest(schemas, request.on, request.by, request.within, request.direction)
        top, ties = request.k, request.ties
    elif request.top is not None:
        if request.algorithm != "auto" or request.parameters or request.diagonal:
            raise PlanError(
                "algorithm= is for joins with all partners. The best ones are found by a kernel: leave it out."
            )
        best = parse_best(request.top, request.order_by, request.ties, schemas, zone, in_process, trusted)
        return request.on, best
    else:
        refuse_without_top(request)
        return None
    best = parse_best(top, spelled.order_by, ties, schemas, zone, in_process, trusted, spelled.is_distance)
    return spelled.on, best


def refuse_without_top(request: Request) -> None:
    """Refuse options that select among partners where all partners are results."""
    for name in ("order_by", "ties"):
        if name in request.given:
            raise InputError(f"{name}= says which partners top= keeps: give top=1, or leave {name} out.")


def plan_progressive(request: Request, *, look: bool = False) -> tuple[JoinPlan, tuple[Any, Any]]:
    """The plan of a progressive join, and both inputs: tables, or sources of rows that are still to come."""
    (left, right), workers = request.input_list, request.workers
    inputs = (_source(left), _source(right))
    request.refuse_outside(Where.STEPS if all(isinstance(rows, pa.Table) for rows in inputs) else Where.ARRIVING)
    if workers > 1 and request.algorithm == "diag":
        raise PlanError("algorithm='diag' runs in one worker: leave out workers=.")
    if left is right and isinstance(inputs[0], Local):
        raise InputError("both sides are the same reader, which can be read only once: give two readers, or a table.")
    schemas = [joined_schema(rows) for rows in inputs]
    condition = parse(request.on, schemas[0], schemas[1], in_process=True)
    scans = both_scans(inputs)
    facts = InputFacts(
        "progressive",
        size=_size(inputs) if workers == 1 else None,  # the share of each worker is not known
        diagonal=None if scans is None else ScanDiagonals(scans, look),
    )
    return _plan(request, condition, facts), inputs


def plan_ordered(request: Request) -> tuple[JoinPlan, tuple[Scan, Scan]]:
    """The plan of a progressive join with ordered results, and both inputs, which are at rest."""
    left, right = request.input_list
    scans = both_scans((_source(left), _source(right)))
    if scans is None:
        raise PlanError(
            "order_by needs tables or Parquet files: while rows still arrive, the first result may come last. Read "
            "them into tables, or sort the results."
        )
    return plan_join(parse(request.on, scans[0].schema, scans[1].schema, in_process=True), request.how), scans


def plan_several(request: Request) -> tuple[JoinPlan, Mapping[str, Any]]:
    """The plan of a join of three or more inputs, and the inputs: sources if rows are still to come, else tables."""
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
    """The size of both tables. None if rows are still to come, or if copies may take more: each batch has its own
    dictionary.
    """
    if not all(isinstance(rows, pa.Table) and not any(map(uses_dictionaries, rows.schema.types)) for rows in inputs):
        return None
    return TableSize(sum(rows.num_rows for rows in inputs), sum(rows.nbytes for rows in inputs))


def _selected(rows: Scan, columns: Sequence[str]) -> Scan:
    """The same rows with only these columns."""
    if isinstance(rows, ParquetSource):
        return rows.with_columns(columns)
    return TableScan(rows.to_table(columns).select(list(columns)))


def _source(rows: Any) -> Any:
    """A table if the rows are at rest, a source if they are in files or still to come."""
    rows = collected(rows)
    found = file_rows(rows)
    return as_input(rows if found is None else found)


def scan(rows: Any) -> Scan:
    """Accepts tables, paths of files, and Parquet files as a dataset."""
    if isinstance(rows, pa.Table):  # faster than checking the protocol
        return TableScan(arrow_table(rows))
    rows = collected(rows)
    if isinstance(rows, Scan):
        return rows
    found = file_rows(rows)
    return found if isinstance(found, Scan) else TableScan(arrow_table(rows if found is None else found))
