"""Carries out the public calls: Spark DataFrames go to Spark, everything else is joined in process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dovetail.aggregates import aggregates_of_left, finish, partial_aggregates
from dovetail.columns.batches import one_batch
from dovetail.condition import parse
from dovetail.condition.select import (
    GroupColumn,
    check_aggregated,
    check_names,
    parse_aggregates,
    parse_by,
    parse_order,
)
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Observer
from dovetail.core.rows import Side
from dovetail.core.threads import allow_threads, read_threads
from dovetail.diag.join import join_along_diagonal
from dovetail.errors import InputError, PlanError
from dovetail.execution.at_rest import count_at_rest
from dovetail.execution.best import join_best
from dovetail.execution.in_process import Step, join_progressively, join_tables
from dovetail.execution.multiway import count_several, join_several
from dovetail.execution.ordered import join_in_order
from dovetail.execution.output import LARGEST_BYTES, MOST_BYTES, multi_schema, output_schema
from dovetail.execution.parallel import plan_workers
from dovetail.execution.steps import limit_steps
from dovetail.execution.stop_rule import Until
from dovetail.execution.unique_keys import check_unique
from dovetail.inputs import (
    both_scans,
    choose_tables,
    plan_ordered,
    plan_progressive,
    plan_several,
    plan_tables,
    refuse_without_top,
    scan,
)
from dovetail.matching.matcher import FEW_ROWS
from dovetail.monitoring.progress_bar import watched
from dovetail.monitoring.recorded_joins import heading_of, join_recorded, record_steps, show_steps, wants_screen
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.snapshot import Heading
from dovetail.options import Where
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import with_estimate
from dovetail.planning.statistics import sample_table, sampled_columns
from dovetail.request import Request
from dovetail.result_columns import ResultColumns, mark_rows
from dovetail.sources.protocol import Scan


def join(request: Request) -> Any:
    if request.on_spark:
        from dovetail.spark import best_dataframes, join_dataframes

        if request.top is not None:
            return best_dataframes(request)
        refuse_without_top(request)
        return join_dataframes(request)
    request.refuse_outside(Where.TABLES)
    plan, scans = plan_tables(request)
    columns = ResultColumns.of(request, *plan.condition.schemas)
    if columns.marked:
        request = mark_rows(request, scans, columns)
        plan, scans = plan_tables(request)
    check_unique(request.validate, plan.condition, scans)
    return _collect(request, plan, scans, columns)


def asof(request: Request) -> Any:
    if request.on_spark:
        from dovetail.spark import best_dataframes

        return best_dataframes(request)
    return _best(request)


def nearest(request: Request) -> Any:
    if request.on_spark:
        from dovetail.spark import best_dataframes

        return best_dataframes(request)
    return _best(request)


def _best(request: Request) -> Any:
    """The best partner of each row, in process."""
    request.refuse_outside(Where.TABLES)
    plan, scans = plan_tables(request)
    return _collect(request, plan, scans, ResultColumns.plain(plan.condition.schemas, plan.how, request.suffix))


def _collect(request: Request, plan: JoinPlan, scans: tuple[Scan, Scan], columns: ResultColumns) -> Any:
    """The result of a join in process, as a table or a reader."""
    tables = choose_tables(request, plan, scans, columns.suffix, columns.joined_names)
    plan, limit, progress = tables.plan, request.limit, request.progress
    allowed = read_threads(request.threads)
    if limit == 0:
        nothing = columns.schema.empty_table()
        return nothing if request.to == "table" else nothing.to_reader()

    def batches(observer: Observer | None, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        found: Iterator[pa.RecordBatch]
        if plan.best is not None:
            found = join_best(plan, *scans, columns.suffix, observer, limit, allowed, batch_bytes)
        elif plan.diagonal is not None:
            steps = join_along_diagonal(plan, tables.scans, tables.schema, observer, allowed)
            found = (step.batch for step in limit_steps(steps, limit))
        else:
            found = join_tables(plan, *tables.scans, tables.schema, observer, limit, allowed, batch_bytes, tables.drop)
        return tables.chosen(found)

    if request.to == "reader":
        if progress is True:
            raise PlanError("progress=True needs to='table'. A reader shows no progress.")
        return pa.RecordBatchReader.from_batches(
            columns.schema, map(columns.of_batch, batches(progress or None, MOST_BYTES))
        )
    with watched(progress) as observer:
        return columns.of_table(batches(observer, LARGEST_BYTES))


def multijoin(request: Request) -> Any:
    if request.on_spark:
        from dovetail.spark import multijoin_dataframes

        return multijoin_dataframes(request)
    request.refuse_outside(Where.SEVERAL)
    plan, inputs = plan_several(request)
    schema = multi_schema(plan.graph.schemas)
    return pa.Table.from_batches(
        join_several(plan, inputs, schema, read_threads(request.threads), LARGEST_BYTES), schema
    )


def count(request: Request) -> int:
    if request.on_spark:
        from dovetail.spark import count_dataframes, multijoin_dataframes

        return int(multijoin_dataframes(request).count()) if request.is_of_several else count_dataframes(request)
    allowed = read_threads(request.threads)
    if request.is_of_several:
        request.refuse_outside(Where.SEVERAL)
        plan, several = plan_several(request)
        return count_several(plan, several, allowed)
    request.refuse_outside(Where.TABLES)
    left, right = (scan(rows).to_table() for rows in request.input_list)
    condition = parse(request.on, left.schema, right.schema, in_process=True)
    with allow_threads(allowed if left.num_rows + right.num_rows >= FEW_ROWS else 1):
        return count_at_rest(condition, one_batch(left, left.schema), one_batch(right, right.schema))


def aggregate(request: Request, aggregates: Mapping[str, str] | None) -> Any:
    if aggregates is None:
        raise InputError("there is no aggregate: give a dict of names and SQL, such as {'n': 'count(*)'}.")
    if request.on_spark:
        from dovetail.spark import aggregate_dataframes

        if JoinType.read(request.how) is not JoinType.INNER:
            raise PlanError(
                f"how={request.how!r}: aggregates on Spark support inner joins only. Join the rest to the result."
            )
        return aggregate_dataframes(request, aggregates)
    request.refuse_outside(Where.TABLES)
    allowed = read_threads(request.threads)
    left, right = (scan(rows).to_table() for rows in request.input_list)
    schemas = (left.schema, right.schema)
    condition = parse(request.on, *schemas, in_process=True)
    wanted, groups = parse_aggregates(aggregates, *schemas, in_process=True), parse_by(request.by, *schemas)
    check_names(groups, wanted)
    batches = (one_batch(left, left.schema), one_batch(right, right.schema))
    if check_aggregated(request.how, groups) is JoinType.LEFT:
        with allow_threads(allowed if left.num_rows + right.num_rows >= FEW_ROWS else 1):
            partials = aggregates_of_left(condition, wanted, groups, *batches)
        found = finish(wanted, groups, partials)
        if groups:
            return _with_group_types(pa.Table.from_batches([found]), groups, schemas)
        return _beside(left, found)
    with allow_threads(allowed if left.num_rows + right.num_rows >= FEW_ROWS else 1):
        partials = partial_aggregates(condition, wanted, groups, *batches)
    return _with_group_types(pa.Table.from_batches([finish(wanted, groups, partials)]), groups, schemas)


def _beside(left: pa.Table, found: pa.RecordBatch) -> pa.Table:
    """The left rows with the columns of `found` appended."""
    for name, column in zip(found.schema.names, found.columns, strict=True):
        if name in left.column_names:
            raise InputError(f"the result would have two columns called {name!r}: rename an aggregate.")
        left = left.append_column(found.schema.field(name), column)
    return left


def _with_group_types(table: pa.Table, groups: Sequence[GroupColumn], schemas: Sequence[pa.Schema]) -> pa.Table:
    """Restore the extension types of group columns, which aggregation of the stored values loses."""
    for number, group in enumerate(groups):
        type_ = schemas[group.side].field(group.name).type
        if isinstance(type_, pa.BaseExtensionType):
            stored = table.column(number).combine_chunks().cast(type_.storage_type)
            values = pa.ExtensionArray.from_storage(type_, stored)
            table = table.set_column(number, pa.field(group.name, type_), values)
    return table


# Step by step.


def progressive(request: Request) -> Iterator[Step]:
    record, progress = request.record, request.progress
    recording = record if record is None or isinstance(record, Recording) else Recording(record)
    is_shown = wants_screen(progress)
    if is_shown and recording is None:
        recording = Recording()
    if request.limit is not None and request.aggregate is not None:
        raise PlanError("limit= cannot be combined with aggregates, which are over all results.")
    run = _progressive_on_spark if request.on_spark else _progressive_in_process
    steps = run(request, recording)
    return show_steps(steps, recording, progress) if is_shown and recording is not None else steps


def _progressive_on_spark(request: Request, recording: Recording | None) -> Iterator[Step]:
    from dovetail.spark import order_dataframes, progressive_dataframes

    if request.order_by is not None and not request.is_of_several:
        heading = Heading(str(request.on), algorithm="join, then sort", where="on Spark")
        return record_steps(order_dataframes(request), heading, recording)
    waves = limit_steps(progressive_dataframes(request), request.limit)
    return record_steps(waves, Heading(str(request.on), algorithm="waves", where="on Spark"), recording)


def _progressive_in_process(request: Request, recording: Recording | None) -> Iterator[Step]:
    limit = request.limit
    if request.is_of_several:
        request.refuse_outside(Where.SEVERAL_STEPS)
        plan, several = plan_several(request)
        return _joined(request, plan, list(several.values()), "", recording)
    if request.order_by is not None:
        request.refuse_outside(Where.ORDERED)
        plan, scans = plan_ordered(request)
        keys = parse_order(request.order_by, *plan.condition.schemas)
        columns = ResultColumns.of(request, *plan.condition.schemas)
        steps = join_in_order(plan, (scans[0].to_table(), scans[1].to_table()), columns.suffix, keys, limit)
        steps = limit_steps(steps, None, Until.read(request.until))
        return columns.of_steps(record_steps(steps, heading_of(plan, scans), recording))
    if request.aggregate is not None and (JoinType.read(request.how) != "inner" or request.algorithm == "diag"):
        raise PlanError("aggregate= supports inner joins, and not algorithm='diag'.")
    plan, inputs = plan_progressive(request)
    columns = ResultColumns.of(request, *plan.condition.schemas)
    if plan.diagonal is not None and (found := both_scans(inputs)) is not None:
        until = Until.read(request.until)
        schema = output_schema(*plan.condition.schemas, columns.suffix, plan.how)
        steps = limit_steps(join_along_diagonal(plan, found, schema), limit, until)
        return columns.of_steps(record_steps(steps, heading_of(plan, inputs), recording))
    return columns.of_steps(_joined(request, plan, inputs, columns.suffix, recording))


def _joined(
    request: Request, plan: JoinPlan, inputs: Sequence[Any], suffix: str, recording: Recording | None
) -> Iterator[Step]:
    """A progressive join, run by an operator as rows arrive."""
    limit, aggregates, workers, until = request.limit, request.aggregate, request.workers, Until.read(request.until)
    if recording is not None and workers == 1:
        return join_recorded(plan, inputs, suffix, request.wait_ms, request.retry, recording, aggregates, limit, until)
    running = join_progressively(
        plan,
        inputs,
        suffix,
        request.wait_ms,
        request.retry,
        aggregates=aggregates,
        workers=workers,
        left_s=lambda: until.left_s,
    )
    if recording is not None:
        return record_steps(limit_steps(running, limit, until), heading_of(plan, inputs), recording)
    is_endless = limit is None and request.until is None
    return running if is_endless else running.wrapped(lambda steps: limit_steps(steps, limit, until))


# Plans.


def explain_query(frame: Any) -> Any:
    """Which joins of a Spark query Dovetail runs."""
    if not type(frame).__module__.startswith("pyspark.sql"):
        raise InputError(
            f"explain takes two inputs and a condition, or one DataFrame of Spark; got one {type(frame).__name__}."
        )
    from dovetail.spark import explain_query

    return explain_query(frame)


def explain(request: Request) -> JoinPlan:
    """The plan of the call that the request is for."""
    plan = _explain_on_spark(request) if request.on_spark else _explain_in_process(request)
    return plan if request.limit is None else replace(plan, limit=request.limit)


def _explain_on_spark(request: Request) -> JoinPlan:
    from dovetail.spark import explain_dataframes, explain_several_dataframes, explain_waves

    if request.is_of_several:
        return explain_several_dataframes(request)
    if request.call == "progressive" and request.order_by is None:
        return explain_waves(request)
    return explain_dataframes(request)


def _explain_in_process(request: Request) -> JoinPlan:
    scans: tuple[Scan, Scan] | None
    if request.is_of_several:
        request.refuse_outside(Where.SEVERAL_STEPS if request.call == "progressive" else Where.SEVERAL)
        return plan_several(request)[0]
    if request.call in ("join", "asof", "nearest"):
        request.refuse_outside(Where.TABLES)
        plan, scans = plan_tables(request, look=True)
        columns = ResultColumns.of(request, *plan.condition.schemas)
        if columns.joined_names is not None:
            chosen = choose_tables(request, plan, scans, columns.suffix, columns.joined_names, look=True)
            plan, scans = chosen.plan, chosen.scans
    elif request.order_by is not None:
        request.refuse_outside(Where.ORDERED)
        plan, scans = plan_ordered(request)
        columns = ResultColumns.of(request, *plan.condition.schemas)
    else:
        plan, inputs = plan_progressive(request, look=True)
        columns = ResultColumns.of(request, *plan.condition.schemas)
        if request.workers > 1:
            plan, _ = plan_workers(plan, inputs, request.workers)
        scans = both_scans(inputs)
    _ = columns.schema  # refuses names that clash
    if scans is None:  # rows that can be read only once are left to the join
        return plan
    tables = [scans[side].to_table(sampled_columns(plan.condition, side)) for side in Side]
    samples = [sample_table(plan.condition, side, tables[side]) for side in Side]
    return with_estimate(plan, (samples[0], samples[1]))
