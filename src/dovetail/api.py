"""The calls that users make. Spark DataFrames go to Spark, all other tables are joined in process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dovetail.aggregates import finish, partial_aggregates
from dovetail.arguments import argument_names, check_names, refuse_unknown
from dovetail.condition import parse
from dovetail.condition.select import GroupColumn, OrderBy, parse_aggregates, parse_by, parse_order
from dovetail.condition.select import check_names as check_aggregate_names
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Observer
from dovetail.core.rows import Side, one_batch
from dovetail.core.threads import allow_threads, read_threads
from dovetail.diag.join import join_along_diagonal
from dovetail.errors import InputError, PlanError
from dovetail.execution.at_rest import count_at_rest
from dovetail.execution.in_process import Step, join_progressively, join_tables
from dovetail.execution.multiway import count_several, join_several
from dovetail.execution.ordered import join_in_order
from dovetail.execution.output import LARGEST_BYTES, MOST_BYTES, multi_schema, output_schema
from dovetail.execution.parallel import plan_workers
from dovetail.execution.steps import check_limit, limit_steps
from dovetail.inputs import (
    both_scans,
    bytes_of,
    named_inputs,
    plan_ordered,
    plan_progressive,
    plan_several,
    plan_tables,
    scan,
)
from dovetail.matching.matcher import FEW_ROWS
from dovetail.monitoring.progress_bar import watched
from dovetail.monitoring.recorded_joins import heading_of, join_recorded, record_steps, show_steps, wants_screen
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.snapshot import Heading
from dovetail.operators.registry import parameter_names
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts, with_estimate
from dovetail.planning.statistics import sample_table, sampled_columns
from dovetail.sources.protocol import Scan
from dovetail.sources.reader import WAIT_MS, Retry
from dovetail.window import Window

if TYPE_CHECKING:
    from dovetail.spark import Written

On = str | Sequence[Any] | Any

RESULTS = ("table", "reader")
METRICS = "dovetail"
"""What a join of streams is called in the query's progress, unless it has another name."""
EARLY_MEMORY = "256MB"
"""The memory of a progressive join, unless another is given."""


def join(
    left: Any,
    right: Any,
    on: On,
    how: str = "inner",
    *,
    suffix: str = "_right",
    window: Window | None = None,
    memory: str | int | None = None,
    algorithm: str = "auto",
    limit: int | None = None,
    progress: bool | Observer | None = None,
    threads: int | None = None,
    to: str = "table",
    cells: int | None = None,
    sample: bool = True,
    state_dir: str | None = None,
    metrics: str = METRICS,
    end: str | tuple[str, str] | None = None,
    latency: str | timedelta | None = None,
    share: float | None = None,
    one: str | None = None,
    tables: int | None = None,
    trusted: bool = False,
    **parameters: Any,
) -> Any:
    """Join two inputs on any condition.

    Spark DataFrames give a DataFrame, a streaming one if they stream. pyarrow, pandas and Polars tables and Parquet
    files give a pyarrow.Table, joined in this process.

    Args:
        left: A Spark DataFrame; or a pyarrow, pandas or Polars table, a path of Parquet files, a pyarrow dataset.
        right: The same kind of input.
        on: SQL text with the aliases l and r, a list of column names, or PySpark Columns.
        how: inner, left, right, full, left_semi or left_anti.
        suffix: Appended to names of right columns that clash with a left one.
        window: For streams: `dovetail.window(...)`; only rows within the window of each other are joined.
        memory: What each cell may keep in memory, such as "256MB"; further rows are spilled to disk.
        algorithm: "auto", or the name of an algorithm; then its parameters can be given, too.
        limit: At most this many rows, in no particular order. The join stops when it has them, on Spark in every task.
            For streams it is the total, also across restarts.
        progress: In process: False for no bar, True for one in any case, or a function that is called with
            `Progress`. By default a join of more than a second shows a bar on a terminal and in a notebook. A reader
            takes a function only.
        threads: In process: the number of threads; all cores by default. It does not change the rows or their order.
        to: In process: "table", or "reader" for a pyarrow.RecordBatchReader, which joins as it is read: for results
            larger than memory.
        cells: On Spark: into how many cells the join is divided; by default a sample decides.
        sample: On Spark: whether the inputs are sampled first, which balances cells and skips those without matches.
        state_dir: Streams: where state is kept, a path or a URI that all workers share and that outlives restarts.
        metrics: Streams: the name of the join in the query's progress.
        end: Streams that end: a SQL predicate that is true of the last row of an input, a pair of them, "source" for
            Dovetail's sources, or "available" if the data that is there now is complete.
        latency: Streams that end: how long rows may wait for background work to pause, such as "1 second".
        share: algorithm="diag": the window, as a share of the side with the unique key.
        one: algorithm="diag": the side with the unique key, "left" or "right".
        tables: algorithm="diag": into how many tables the window is divided.
        trusted: On Spark: text (`on`, `end`) may call every function, also those with side effects such as
            `java_method`, and functions of your own. Give it for text of your own only.
        **parameters: Parameters of the named algorithm, such as algorithm="rpj", n_flush=0.1.

    Returns:
        The left columns, then the right ones: a DataFrame, a pyarrow.Table or a pyarrow.RecordBatchReader.

    Raises:
        ConditionError: The condition cannot be read, or names an unknown column.
        InputError: An argument is not what the call needs. ArgumentError, if there is none of that name.
        PlanError: The algorithm cannot run this join.
        BudgetError: The memory is too small.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> racks = pa.table({"rack": ["a", "b", "c"], "power": [3, 5, 9]})
        >>> coolers = pa.table({"cooler": ["x", "y"], "cools": [4, 8]})
        >>> dovetail.join(racks, coolers, "l.power <= r.cools").to_pandas()
          rack  power cooler  cools
        0    a      3      x      4
        1    a      3      y      8
        2    b      5      y      8
        >>> dovetail.join(racks, coolers, "l.power <= r.cools", "left_anti")["rack"].to_pylist()
        ['c']
    """
    _check_parameters(join, parameters)
    options = parameters | _given(
        cells=cells,
        sample=sample,
        state_dir=state_dir,
        metrics=metrics,
        end=end,
        latency=latency,
        share=share,
        one=one,
        tables=tables,
        trusted=trusted,
    )
    limit = check_limit(limit)
    if to not in RESULTS:
        raise InputError(f"to is one of {', '.join(RESULTS)}; got {to!r}.")
    if _on_spark(left, right):
        if threads is not None or to != "table":
            raise PlanError("threads= and to= are for tables in process; a DataFrame is Spark's to compute.")
        if progress:
            raise PlanError("progress= is supported for tables in process; Spark shows its own progress.")
        from dovetail.spark import join_dataframes

        return join_dataframes(
            left,
            right,
            on,
            how,
            suffix=suffix,
            window=window,
            memory_bytes=bytes_of(memory),
            algorithm=algorithm,
            limit=limit,
            **options,
        )
    _refuse(window=window)
    plan, scans = plan_tables(left, right, on, how, memory, algorithm, options)
    schema = output_schema(*plan.condition.schemas, suffix, plan.how)
    allowed = read_threads(threads)
    if limit == 0:
        nothing = schema.empty_table()
        return nothing if to == "table" else nothing.to_reader()

    def batches(observer: Observer | None, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        if plan.diagonal is not None:
            steps = join_along_diagonal(plan, scans, suffix, observer, allowed)
            return (step.batch for step in limit_steps(steps, limit))
        return join_tables(plan, *scans, suffix, observer, limit, allowed, batch_bytes)

    if to == "reader":
        if progress is True:
            raise PlanError("progress=True is for to='table'; a reader is as far as it has been read.")
        return pa.RecordBatchReader.from_batches(schema, batches(progress or None, MOST_BYTES))
    with watched(progress) as observer:
        return pa.Table.from_batches(batches(observer, LARGEST_BYTES), schema)


def progressive(
    left: Any,
    right: Any = None,
    on: On = None,
    how: str = "inner",
    *,
    suffix: str = "_right",
    memory: str | int | None = EARLY_MEMORY,
    algorithm: str = "auto",
    wait_ms: float = WAIT_MS,
    retry: Retry | None = None,
    record: Recording | str | os.PathLike[str] | None = None,
    workers: int = 1,
    order_by: OrderBy | None = None,
    limit: int | None = None,
    progress: bool | None = None,
    aggregate: Mapping[str, str] | None = None,
    until: Any = None,
    work_dir: str | None = None,
    cells: int | None = None,
    seed: int = 0,
    sample: bool = True,
    share: float | None = None,
    one: str | None = None,
    tables: int | None = None,
    trusted: bool = False,
    **parameters: Any,
) -> Iterator[Step]:
    """Results as they are found: an iterator of steps with new rows, the phase and the number of results so far.

    Tables arrive in turn, a small batch of each. Everything else is read in threads of its own, as fast as it comes and
    as fast as it can be joined; while nothing arrives, the join processes spilled rows (phase `reactive`). Breaking
    out of the loop stops the threads, closes the sources and frees memory and files.

    DataFrames at rest are joined in waves of small jobs, the cells with the most expected results first, with an
    estimate after each.

    Args:
        left: A table, Parquet files, a pyarrow RecordBatchReader, an iterator of record batches with a `schema`, a
            source such as `dovetail.sources.flight`, or a Spark DataFrame at rest. Three and more inputs are a
            dictionary: progressive({"o": orders, "c": customers, "n": nations}, on="...").
        right: The other input.
        on: SQL text with the aliases l and r, a list of column names, or PySpark Columns.
        how: inner, left, right, full, left_semi or left_anti; for DataFrames inner only.
        suffix: Appended to names of right columns that clash with a left one.
        memory: What the join may keep in memory; None for no limit.
        algorithm: "auto", or the name of an algorithm; then its parameters can be given, too.
        wait_ms: How long to wait for rows before spilled rows are joined; 0: whenever no row waits.
        retry: How often and how soon a source that fails is opened again at its position. After that SourceError is
            raised; earlier steps remain valid.
        record: A file that `dovetail watch` follows, or a `dovetail.Recording`: what the join does over time.
        workers: In process: the number of threads that join tables. A sample balances their load; each has its part
            of the memory.
        order_by: Results in order: "l.x", "r.y DESC", "l.a NULLS LAST", or a list of these, each over one side. For
            tables and Parquet files, which are kept in memory; with a `limit` joined only until there are enough
            rows. Nulls and NaN are ordered as in Spark, which sorts DataFrames after the join.
        limit: The iterator ends with the step that completes this many rows.
        progress: True shows the join while it runs: a chart in a notebook, a panel on a terminal, else lines. By
            default a join of more than a second does so in a notebook only; False is never.
        aggregate: `{"n": "count(*)", "mean": "avg(l.fare)"}`: `step.aggregates` with bounds, instead of rows.
        until: DataFrames: 10_000 results, a relative error of 0.01, "30 seconds", or a list of these; then it stops.
        work_dir: DataFrames: a directory from which a join that was stopped resumes.
        cells: DataFrames: into how many cells the join is divided.
        seed: DataFrames: the seed of the samples.
        sample: DataFrames with `order_by`: whether the inputs are sampled first.
        share: algorithm="diag": the window, as a share of the side with the unique key.
        one: algorithm="diag": the side with the unique key, "left" or "right".
        tables: algorithm="diag": into how many tables the window is divided.
        trusted: DataFrames: text (`on`, `order_by`) may call every function, also those with side effects such as
            `java_method`, and functions of your own. Give it for text of your own only.
        **parameters: Parameters of the named algorithm, such as algorithm="pmj", fan_in=8.

    Returns:
        An iterator of steps: `batch`, `phase`, `results`, `estimate` (how many results there will be, with bounds, if
        both sizes are known; rows of sources must come in random order, and `objection` says if they do not),
        `aggregates`. In process it is also a handle: `close()`, and `memory("50MB")` for algorithms that can change
        their budget.

    Raises:
        ConditionError, InputError, ArgumentError, PlanError, BudgetError: As for `join`.
        SourceError: A source failed, and retries are exhausted.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> orders = pa.table({"id": range(1000)})
        >>> payments = pa.table({"order_id": range(0, 1000, 4)})
        >>> for step in dovetail.progressive(orders, payments, "l.id = r.order_id", limit=100):
        ...     print(step)
        <Step arriving: 100 new results, 100 so far, 250 in all>
    """
    _check_parameters(progressive, parameters)
    options = parameters | _given(
        aggregate=aggregate,
        until=until,
        work_dir=work_dir,
        cells=cells,
        seed=seed,
        sample=sample,
        share=share,
        one=one,
        tables=tables,
        trusted=trusted,
    )
    recording = record if record is None or isinstance(record, Recording) else Recording(record)
    is_shown = wants_screen(progress)
    if is_shown and recording is None:
        recording = Recording()
    steps = _progressive(
        left, right, on, how, suffix, memory, algorithm, wait_ms, retry, recording, workers, order_by, limit, options
    )
    return show_steps(steps, recording, progress) if is_shown and recording is not None else steps


def _progressive(
    left: Any,
    right: Any,
    on: On,
    how: str,
    suffix: str,
    memory: str | int | None,
    algorithm: str,
    wait_ms: float,
    retry: Retry | None,
    recording: Recording | None,
    workers: int,
    order_by: OrderBy | None,
    limit: int | None,
    options: dict[str, Any],
) -> Iterator[Step]:
    """`progressive`, recorded or not."""
    limit = check_limit(limit)
    on = _condition(left, right, on)
    if limit is not None and "aggregate" in options:
        raise PlanError("limit is for rows; aggregates are over all results.")
    if order_by is not None:
        return _progressive_in_order(
            left, right, on, how, suffix, algorithm, recording, workers, order_by, limit, options
        )
    if isinstance(left, Mapping):
        return _progressive_several(
            left, on, how, memory, algorithm, wait_ms, retry, recording, workers, limit, options
        )
    if _on_spark(left, right):
        from dovetail.spark import progressive_dataframes

        if workers != 1:
            raise PlanError("workers are for tables in process; Spark has its own.")
        waves = progressive_dataframes(
            left, right, on, how, suffix=suffix, memory_bytes=bytes_of(memory), algorithm=algorithm, **options
        )
        return record_steps(limit_steps(waves, limit), Heading(str(on), algorithm="waves", where="on Spark"), recording)
    if wait_ms < 0:
        raise InputError(f"wait_ms must not be negative; got {wait_ms}.")
    aggregates = options.pop("aggregate", None)
    if aggregates is not None and (JoinType.read(how) != "inner" or algorithm == "diag"):
        raise PlanError("aggregate is for inner joins, by another algorithm than diag.")
    plan, inputs = plan_progressive(left, right, on, how, memory, algorithm, workers, options)
    if plan.diagonal is not None and (scans := both_scans(inputs)) is not None:
        steps = limit_steps(join_along_diagonal(plan, scans, suffix), limit)
        return record_steps(steps, heading_of(plan, inputs), recording)
    if workers > 1 and recording is not None:
        steps = limit_steps(join_progressively(plan, inputs, suffix, aggregates=aggregates, workers=workers), limit)
        return record_steps(steps, heading_of(plan, inputs), recording)
    if recording is None:
        running = join_progressively(plan, inputs, suffix, wait_ms, retry, aggregates=aggregates, workers=workers)
        return running if limit is None else running.wrapped(lambda steps: limit_steps(steps, limit))
    return join_recorded(plan, inputs, suffix, wait_ms, retry, recording, aggregates, limit)


def _progressive_in_order(
    left: Any,
    right: Any,
    on: On,
    how: str,
    suffix: str,
    algorithm: str,
    recording: Recording | None,
    workers: int,
    order_by: OrderBy,
    limit: int | None,
    options: dict[str, Any],
) -> Iterator[Step]:
    """`progressive` with results in order."""
    if isinstance(left, Mapping):
        raise PlanError("order_by is for joins of two inputs.")
    if workers != 1:
        raise PlanError("workers are not for results in order: each would have its own.")
    if _on_spark(left, right):
        from dovetail.spark import order_dataframes

        steps = order_dataframes(
            left, right, on, how, suffix=suffix, algorithm=algorithm, order_by=order_by, limit=limit, **options
        )
        return record_steps(steps, Heading(str(on), algorithm="join, then sort", where="on Spark"), recording)
    plan, scans = plan_ordered(left, right, on, how, algorithm, options)
    keys = parse_order(order_by, *plan.condition.schemas)
    steps = join_in_order(plan, (scans[0].to_table(), scans[1].to_table()), suffix, keys, limit)
    return record_steps(steps, heading_of(plan, (scans[0], scans[1])), recording)


def _progressive_several(
    inputs: Mapping[str, Any],
    on: On,
    how: str,
    memory: str | int | None,
    algorithm: str,
    wait_ms: float,
    retry: Retry | None,
    recording: Recording | None,
    workers: int,
    limit: int | None,
    options: dict[str, Any],
) -> Iterator[Step]:
    """`progressive` of three and more inputs."""
    if _on_spark(*named_inputs(inputs).values()):
        raise PlanError("progressive joins of three and more DataFrames are not supported; use dovetail.multijoin.")
    if workers != 1:
        raise PlanError("workers= supports joins of two tables only.")
    if "aggregate" in options:
        raise PlanError("aggregate is for joins of two inputs.")
    if wait_ms < 0:
        raise InputError(f"wait_ms must not be negative; got {wait_ms}.")
    plan, found = plan_several(inputs, on, how, InputFacts("progressive"), memory, algorithm, options)
    rows = list(found.values())
    if recording is None:
        running = join_progressively(plan, rows, "", wait_ms, retry)
        return running if limit is None else running.wrapped(lambda steps: limit_steps(steps, limit))
    return join_recorded(plan, rows, "", wait_ms, retry, recording, limit=limit)


def count(
    left: Any,
    right: Any = None,
    on: On = None,
    *,
    threads: int | None = None,
    memory: str | int | None = None,
    algorithm: str = "auto",
    cells: int | None = None,
    sample: bool = True,
    trusted: bool = False,
    **parameters: Any,
) -> int:
    """How many pairs an inner join has. No pair is enumerated unless a residual has to be checked.

    Args:
        left: An input as for `join`. Three and more are a dictionary, as for `multijoin`: results are counted, and no
            row is put together.
        right: The other input.
        on: SQL text with the aliases l and r, a list of column names, or PySpark Columns.
        threads: In process: how many; all cores by default.
        memory: Three and more DataFrames: as for `multijoin`.
        algorithm: Three and more DataFrames: as for `multijoin`.
        cells: On Spark: into how many cells the join is divided; by default a sample decides.
        sample: On Spark: whether the inputs are sampled first.
        trusted: On Spark: as for `join`.
        **parameters: Three and more DataFrames: parameters of the named algorithm. Further options of `join` on Spark
            change nothing here.

    Returns:
        The number of pairs.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> asks, bids = pa.table({"price": range(1000)}), pa.table({"price": range(2000)})
        >>> dovetail.count(asks, bids, "l.price < r.price")
        1499500
    """
    _check_parameters(count, parameters, argument_names(join))
    on = _condition(left, right, on)
    several_only = parameters | _given(memory=memory, algorithm=algorithm)
    options = _given(cells=cells, sample=sample, trusted=trusted)
    if isinstance(left, Mapping):
        if _on_spark(*named_inputs(left).values()):
            return int(multijoin(left, on, threads=threads, **several_only, **options).count())
        _refuse(**several_only, **options)
        plan, several = plan_several(left, on, "inner", InputFacts(), None, "auto", {})
        return count_several(plan, several, read_threads(threads))
    if _on_spark(left, right):
        from dovetail.spark import count_dataframes

        return count_dataframes(left, right, on, **_given(threads=threads), **several_only, **options)
    _refuse(**several_only, **options)
    allowed = read_threads(threads)
    inputs = [scan(rows).to_table() for rows in (left, right)]
    condition = parse(on, inputs[0].schema, inputs[1].schema, in_process=True)
    batches = [one_batch(table, table.schema) for table in inputs]
    with allow_threads(allowed if sum(batch.num_rows for batch in batches) >= FEW_ROWS else 1):
        return count_at_rest(condition, batches[0], batches[1])


def aggregate(
    left: Any,
    right: Any,
    on: On,
    aggregates: Mapping[str, str],
    *,
    by: str | Sequence[str] | None = None,
    window: Window | None = None,
    threads: int | None = None,
    cells: int | None = None,
    sample: bool = True,
    state_dir: str | None = None,
    metrics: str = METRICS,
    trusted: bool = False,
    **others: Any,
) -> Any:
    """Aggregates over the pairs of an inner join. No pair is enumerated unless a residual has to be checked.

    Args:
        left: An input as for `join`.
        right: The other input.
        on: SQL text with the aliases l and r, a list of column names, or PySpark Columns.
        aggregates: `{"n": "count(*)", "total": "sum(r.amount)"}`: count, sum, avg, min and max of expressions over one
            side.
        by: A column or a list of columns of one side: a row for each group that has a pair. Without it, one row.
        window: Two streams: each row of the left one at its arrival, with aggregates over its partners in the window.
        threads: In process: how many; all cores by default.
        cells: On Spark: into how many cells the join is divided; by default a sample decides.
        sample: On Spark: whether the inputs are sampled first.
        state_dir: Streams: where state is kept.
        metrics: Streams: the name of the join in the query's progress.
        trusted: On Spark: as for `join`.
        **others: Further options of `join` on Spark, which change nothing here.

    Returns:
        A pyarrow.Table, or a DataFrame of DataFrames.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> trips = pa.table({"city": ["Basel", "Basel", "Lima"], "km": [2, 7, 4]})
        >>> zones = pa.table({"within": [5, 10], "fare": [3.0, 4.5]})
        >>> found = dovetail.aggregate(
        ...     trips, zones, "l.km < r.within", {"n": "count(*)", "cheapest": "min(r.fare)"}, by="l.city"
        ... )
        >>> found.to_pylist()
        [{'city': 'Basel', 'n': 3, 'cheapest': 3.0}, {'city': 'Lima', 'n': 2, 'cheapest': 3.0}]
    """
    refuse_unknown(aggregate.__name__, others, argument_names(aggregate) | argument_names(join))
    on_spark_only = others | _given(
        cells=cells,
        sample=sample,
        state_dir=state_dir,
        metrics=metrics,
        trusted=trusted,
    )
    if _on_spark(left, right):
        from dovetail.spark import aggregate_dataframes

        return aggregate_dataframes(left, right, on, aggregates, by, window, **_given(threads=threads), **on_spark_only)
    _refuse(window=window, **on_spark_only)
    allowed = read_threads(threads)
    inputs = [scan(rows).to_table() for rows in (left, right)]
    schemas = (inputs[0].schema, inputs[1].schema)
    condition = parse(on, *schemas, in_process=True)
    wanted, groups = parse_aggregates(aggregates, *schemas), parse_by(by, *schemas)
    check_aggregate_names(groups, wanted)
    batches = [one_batch(table, table.schema) for table in inputs]
    with allow_threads(allowed if sum(batch.num_rows for batch in batches) >= FEW_ROWS else 1):
        partials = partial_aggregates(condition, wanted, groups, batches[0], batches[1])
    return _with_group_types(pa.Table.from_batches([finish(wanted, groups, partials)]), groups, schemas)


def _with_group_types(table: pa.Table, groups: Sequence[GroupColumn], schemas: Sequence[pa.Schema]) -> pa.Table:
    """Aggregates whose groups are of an extension type as they were: stored values do not say what they mean."""
    for number, group in enumerate(groups):
        type_ = schemas[group.side].field(group.name).type
        if isinstance(type_, pa.BaseExtensionType):
            stored = table.column(number).combine_chunks().cast(type_.storage_type)
            values = pa.ExtensionArray.from_storage(type_, stored)
            table = table.set_column(number, pa.field(group.name, type_), values)
    return table


def explain(
    left: Any,
    right: Any = None,
    on: On = None,
    how: str = "inner",
    *,
    suffix: str = "_right",
    window: Window | None = None,
    memory: str | int | None = "auto",
    algorithm: str = "auto",
    progressive: bool = False,
    limit: int | None = None,
    workers: int = 1,
    cells: int | None = None,
    sample: bool = True,
    state_dir: str | None = None,
    metrics: str = METRICS,
    end: str | tuple[str, str] | None = None,
    latency: str | timedelta | None = None,
    aggregate: Mapping[str, str] | None = None,
    until: Any = None,
    work_dir: str | None = None,
    seed: int = 0,
    share: float | None = None,
    one: str | None = None,
    tables: int | None = None,
    trusted: bool = False,
    **parameters: Any,
) -> JoinPlan:
    """What `join` would do with the same arguments, or `progressive`, and why. Nothing is joined.

    It looks at the data as the join would: on Spark by small jobs that sample it, in process by reading the columns of
    the condition. Print the plan, or show it in a notebook.

    Args:
        left: An input as for `join` or `progressive`, or a dictionary of three and more.
        right: The other input.
        on: The condition.
        how: The join type.
        suffix: As for `join`.
        window: As for `join`.
        memory: As for the join; "auto" is what it takes by default.
        algorithm: As for `join`.
        progressive: Whether the plan is that of `dovetail.progressive`.
        limit: As for `join`.
        workers: As for `progressive`.
        cells: As for `join`.
        sample: As for `join`.
        state_dir: As for `join`; it decides nothing.
        metrics: As for `join`; it decides nothing.
        end: As for `join`.
        latency: As for `join`.
        aggregate: As for `progressive`.
        until: As for `progressive`.
        work_dir: As for `progressive`.
        seed: As for `progressive`.
        share: As for `join`.
        one: As for `join`.
        tables: As for `join`.
        trusted: As for `join`.
        **parameters: Parameters of the named algorithm.

    Returns:
        The plan: `print(plan)` has a line for each decision, and a notebook shows a picture of it.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> asks, bids = pa.table({"price": [1, 5]}), pa.table({"price": [2, 3]})
        >>> print(dovetail.explain(asks, bids, "l.price < r.price"))
        join       inner
        condition  l.price < r.price
        driven by  l.price < r.price
        kernel     one_inequality: both sides sorted; the partners of a row are a suffix of the other side
        rows       2 and 2
        pairs      about 2, by a sample
        memory     no limit
    """
    _check_parameters(explain, parameters)
    options = parameters | _given(
        workers=workers,
        cells=cells,
        sample=sample,
        state_dir=state_dir,
        metrics=metrics,
        end=end,
        latency=latency,
        aggregate=aggregate,
        until=until,
        work_dir=work_dir,
        seed=seed,
        share=share,
        one=one,
        tables=tables,
        trusted=trusted,
    )
    plan = _explain(left, right, on, how, suffix, window, memory, algorithm, progressive, options)
    return plan if limit is None else replace(plan, limit=check_limit(limit))


def _explain(
    left: Any,
    right: Any,
    on: On,
    how: str,
    suffix: str,
    window: Window | None,
    memory: str | int | None,
    algorithm: str,
    progressive: bool,
    options: dict[str, Any],
) -> JoinPlan:
    on = _condition(left, right, on)
    if memory == "auto":
        memory = EARLY_MEMORY if progressive else None
    if isinstance(left, Mapping):
        return _explain_several(left, on, how, memory, algorithm, progressive, options)
    if _on_spark(left, right):
        from dovetail.spark import explain_dataframes, explain_waves

        if progressive:
            _refuse(window=window)
            return explain_waves(
                left, right, on, how, suffix=suffix, memory_bytes=bytes_of(memory), algorithm=algorithm, **options
            )
        return explain_dataframes(
            left,
            right,
            on,
            how,
            suffix=suffix,
            window=window,
            memory_bytes=bytes_of(memory),
            algorithm=algorithm,
            **options,
        )
    _refuse(window=window)
    scans: tuple[Scan, Scan] | None
    if progressive:
        workers = options.pop("workers", 1)
        options.pop("aggregate", None)  # any plan will do
        plan, inputs = plan_progressive(left, right, on, how, memory, algorithm, workers, options, look=True)
        if workers > 1:
            plan, _ = plan_workers(plan, inputs, workers)
        scans = both_scans(inputs)
    else:
        plan, scans = plan_tables(left, right, on, how, memory, algorithm, options, look=True)
    output_schema(*plan.condition.schemas, suffix, plan.how)  # refuses names that clash
    if scans is None:  # rows that come once are left to the join
        return plan
    tables = [scans[side].to_table(sampled_columns(plan.condition, side)) for side in Side]
    samples = [sample_table(plan.condition, side, tables[side]) for side in Side]
    return with_estimate(plan, (samples[0], samples[1]))


def _explain_several(
    inputs: Mapping[str, Any],
    on: On,
    how: str,
    memory: str | int | None,
    algorithm: str,
    progressive: bool,
    options: dict[str, Any],
) -> JoinPlan:
    """`explain` of three and more inputs."""
    if _on_spark(*named_inputs(inputs).values()):
        from dovetail.spark import explain_several_dataframes

        return explain_several_dataframes(inputs, on, memory_bytes=bytes_of(memory), algorithm=algorithm, **options)
    facts = InputFacts("progressive" if progressive else "at_rest")
    return plan_several(inputs, on, how, facts, memory, algorithm, options)[0]


def multijoin(
    inputs: Mapping[str, Any],
    on: str | Sequence[str],
    *,
    memory: str | int | None = None,
    algorithm: str = "auto",
    threads: int | None = None,
    cells: int | None = None,
    sample: bool = True,
    state_dir: str | None = None,
    metrics: str = METRICS,
    end: str | Sequence[str] | None = None,
    latency: str | timedelta | None = None,
    trusted: bool = False,
    **parameters: Any,
) -> Any:
    """The inner join of three and more inputs on any condition that connects them.

    Args:
        inputs: The inputs by name: all Spark DataFrames, or all tables in process.
        on: SQL text with these names as aliases, or a list of conditions.
        memory: What each cell may keep in memory.
        algorithm: In process "auto" (kernels that see the inputs complete, two at a time), or "miner", "mjoin" or
            "pmj", which keep to `memory` by spilling to disk. Streams that end are joined by "miner".
        threads: In process: the number of threads; all cores by default. It does not change the rows or their order.
        cells: On Spark: into how many cells the join is divided.
        sample: On Spark: whether the inputs are sampled first.
        state_dir: Streams: where state is kept.
        metrics: Streams: the name of the join in the query's progress.
        end: Streams that end: what is true of the last row of an input, or "source", as for `join`.
        latency: Streams that end: how long rows may wait for background work to pause.
        trusted: Streams that end: `end` may call every function of Spark, as for `join`.
        **parameters: Parameters of the named algorithm.

    Returns:
        The columns of all inputs in their order; a name that several of them have becomes alias_name.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> orders = pa.table({"id": [1, 2, 3], "customer": [7, 8, 7]})
        >>> customers = pa.table({"customer": [7, 8], "nation": [1, 2]})
        >>> nations = pa.table({"nation": [1, 2], "name": ["Peru", "Oman"]})
        >>> found = dovetail.multijoin(
        ...     {"o": orders, "c": customers, "n": nations}, "o.customer = c.customer AND c.nation = n.nation"
        ... )
        >>> sorted(zip(found["id"].to_pylist(), found["name"].to_pylist()))
        [(1, 'Peru'), (2, 'Oman'), (3, 'Peru')]
    """
    _check_parameters(multijoin, parameters)
    options = parameters | _given(
        cells=cells,
        sample=sample,
        state_dir=state_dir,
        metrics=metrics,
        end=end,
        latency=latency,
        trusted=trusted,
    )
    if _on_spark(*named_inputs(inputs).values()):
        if threads is not None:
            raise PlanError("threads= is for tables in process; a DataFrame is Spark's to compute.")
        from dovetail.spark import multijoin_dataframes

        return multijoin_dataframes(inputs, on, memory_bytes=bytes_of(memory), algorithm=algorithm, **options)
    plan, found = plan_several(inputs, on, "inner", InputFacts(), memory, algorithm, options)
    schema = multi_schema(plan.graph.schemas)
    batches = join_several(plan, found, schema, read_threads(threads), LARGEST_BYTES)
    return pa.Table.from_batches(batches, schema)


@check_names
def write(frame: Any, path: str | os.PathLike[str], mode: str = "error") -> Written:
    """Write a Spark DataFrame into a directory of Parquet files, from the tasks that compute it.

    Results of `dovetail.join` are written from Arrow to Parquet without a conversion to Spark rows; any other
    DataFrame is written as well. Readers see nothing until everything is written, also if a task fails before.

        dovetail.write(dovetail.join(orders, items, "l.id = r.order_id"), "joined/", mode="overwrite")

    Args:
        frame: A DataFrame at rest.
        path: The directory.
        mode: "error" (if the path is there already), "overwrite" or "append".

    Returns:
        The number of files and of rows.
    """
    if not type(frame).__module__.startswith("pyspark.sql"):
        raise InputError(f"dovetail.write takes a Spark DataFrame; got {type(frame).__name__}.")
    from dovetail.spark import write_dataframe

    return write_dataframe(frame, path, mode)


def _condition(left: Any, right: Any, on: On) -> On:
    """The condition. With a dictionary of inputs it may be the second argument, where a right input would be."""
    if on is None and isinstance(left, Mapping):
        on = right
    if on is None:
        raise InputError('there is no condition: give on="l.id = r.id", or a list of column names.')
    return on


def _on_spark(*inputs: Any) -> bool:
    """Whether all inputs are Spark DataFrames, told without importing pyspark."""
    spark = [type(table).__module__.startswith("pyspark.sql") for table in inputs]
    if any(spark) and not all(spark):
        raise InputError("some inputs are Spark DataFrames and others are not: give all of the same kind.")
    return all(spark)


DEFAULTS = {"algorithm": "auto", "metrics": METRICS, "sample": True, "seed": 0, "trusted": False, "workers": 1}
"""Options that are not None by default."""


def _given(**options: Any) -> dict[str, Any]:
    """Those options that were given: they are refused where they mean nothing."""
    return {name: value for name, value in options.items() if value is not None and value != DEFAULTS.get(name)}


def _check_parameters(call: Callable[..., Any], parameters: Mapping[str, Any], also: Iterable[str] = ()) -> None:
    """Refuse names that are neither an argument of the call nor a parameter of any algorithm."""
    if parameters:
        refuse_unknown(call.__name__, parameters, {*argument_names(call), *parameter_names(), *also})


def _refuse(**options: Any) -> None:
    """Options that mean nothing for tables in process."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        advice = ""
        if "window" in given:
            advice = (
                " Windows are for streams: put time into the condition, or join Spark streams; "
                "dovetail.progressive with algorithm='spo' joins within a window."
            )
        raise InputError(f"{', '.join(given)}: not an option of joins in process.{advice}")
