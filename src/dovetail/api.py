"""The calls that users make. Spark DataFrames go to Spark, all other tables are joined in process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dovetail.aggregates import finish, partial_aggregates
from dovetail.condition import parse
from dovetail.condition.select import OrderBy, check_names, parse_aggregates, parse_by, parse_order
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Observer
from dovetail.core.rows import Side, one_batch
from dovetail.core.threads import allow_threads, read_threads
from dovetail.errors import InputError, PlanError
from dovetail.execution.at_rest import count_at_rest
from dovetail.execution.in_process import Step, join_along_diagonal, join_progressively, join_tables
from dovetail.execution.inputs import (
    both_scans,
    bytes_of,
    named_inputs,
    plan_ordered,
    plan_progressive,
    plan_several,
    plan_tables,
    scan,
)
from dovetail.execution.multiway import count_several, join_several
from dovetail.execution.ordered import join_in_order
from dovetail.execution.output import LARGEST_BYTES, MOST_BYTES, multi_schema, output_schema
from dovetail.execution.parallel import plan_workers
from dovetail.execution.steps import check_limit, limit_steps
from dovetail.matching.matcher import FEW_ROWS
from dovetail.monitoring.progress_bar import watched
from dovetail.monitoring.recorded_joins import heading_of, join_recorded, record_steps
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.snapshot import Heading
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts, with_estimate
from dovetail.planning.statistics import sample_table, sampled_columns
from dovetail.sources.protocol import Scan
from dovetail.sources.reader import WAIT_MS, Retry

if TYPE_CHECKING:
    from dovetail.spark import Written

On = str | Sequence[Any] | Any

RESULTS = ("table", "reader")
EARLY_MEMORY = "256MB"
"""Of a progressive join, unless another is given."""


def join(
    left: Any,
    right: Any,
    on: On,
    how: str = "inner",
    *,
    suffix: str = "_right",
    window: Any = None,
    memory: str | int | None = None,
    algorithm: str = "auto",
    limit: int | None = None,
    progress: bool | Observer | None = None,
    threads: int | None = None,
    to: str = "table",
    **options: Any,
) -> Any:
    """Join two inputs on any condition.

    Two Spark DataFrames give a DataFrame (a streaming one, if they stream); pyarrow, pandas or Polars tables and
    Parquet files (paths or datasets) give a pyarrow.Table. `on` is SQL text with the aliases l and r, a list of column
    names, or PySpark Columns. `memory` bounds what each cell keeps. The result has the left columns, then the right
    ones; a right name that clashes gets the suffix. Where an `algorithm` is named, its parameters are further options.

    With a `limit`, any so many rows of the result: the join stops as soon as it has them, on Spark every task does. Of
    streams, so many rows in all, also of a query that is started again; then cells stop, and `dovetail.finish` returns.

    In process, joins run on all cores, or on as many `threads` as are allowed; the rows and their order are the same
    for any number. With to="reader" the result is a pyarrow.RecordBatchReader: batches are joined as they are read, so
    that a result larger than memory can be written, or given to Polars or DuckDB, piece by piece.

    In process, a join that takes longer than a second shows a bar on a terminal or in a notebook; `progress` is False
    for none, True for one in any case, or a function that is called with `Progress` values.
    """
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
        tables = (scans[0].to_table(), scans[1].to_table())
        return join_tables(plan, *tables, suffix, observer, limit, allowed, batch_bytes)

    if to == "reader":
        if progress:
            raise PlanError("progress= is for to='table'; a reader is as far as it has been read.")
        return pa.RecordBatchReader.from_batches(schema, batches(None, MOST_BYTES))
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
    **options: Any,
) -> Iterator[Step]:
    """Results as they are found: an iterator of steps with new rows, the phase and the number of results so far.

    Three and more inputs are a dictionary: progressive({"o": orders, "c": customers, "n": nations}, on="…").

    Inputs are tables, Parquet files, pyarrow RecordBatchReaders, iterators of record batches with a `schema`, or
    sources such as `dovetail.sources.flight` and `dovetail.sources.postgres`. Tables arrive in turn; everything else is
    read in threads of its own, as fast as it comes and as fast as it can be joined.

    When no rows have arrived for `wait_ms`, the join processes spilled rows (phase `reactive`) until rows arrive. A
    source that fails is reopened at its position, as configured by `retry`; when retries are exhausted, SourceError
    is raised, and the steps up to then remain valid. Breaking out of the loop stops the threads, closes the sources and
    frees memory and files.

    Where an `algorithm` is named, its parameters are further options: algorithm="rpj", n_flush=0.1. In process, the
    iterator is also a handle: `close()`, and `memory("50MB")` while it runs, for algorithms that can do with more and
    less.

    With `workers`, tables are joined on that many threads; a sample balances their load, and each has its part of
    the memory.

    With a `limit`, the iterator ends with the step that completes so many rows, and sources are closed.

    With `order_by`, results come in order: "l.x", "r.y DESC", "l.a NULLS LAST", or a list of these, each an expression
    over one side. As in Spark, nulls come first in ascending and last in descending order, and NaN is the largest
    number. For tables and Parquet files at rest, which are kept in memory: the side of the first key is joined block by
    block in its order, and with a `limit` only until there are enough rows. Spark sorts DataFrames after the join.

    `record` keeps what the join does over time, in a file that `dovetail watch` follows or in a `dovetail.Recording`.

    `step.estimate` says how many results there will be, with bounds, if both sizes are known and rows come in random
    order; `step.objection` says if they do not. With `aggregate` ({"n": "count(*)", "mean": "avg(l.fare)"}) there are
    `step.aggregates`, values with bounds, instead of rows.

    Spark DataFrames at rest are joined in waves of small jobs, the cells with the most expected results first, with
    an estimate after each. Further options for them: `until` (10_000 results, a relative error of 0.01, "30 seconds",
    or several), after which it stops by itself; `work_dir`, from which a join that was stopped resumes; `cells` and
    `seed`.
    """
    recording = record if record is None or isinstance(record, Recording) else Recording(record)
    limit = check_limit(limit)
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


def count(left: Any, right: Any = None, on: On = None, **options: Any) -> int:
    """How many pairs an inner join has. No pair is enumerated unless a residual has to be checked.

    In process on all cores, or on as many `threads` as are allowed.

    Three and more inputs are a dictionary, as for `multijoin`; their results are found, but no row is put together.
    """
    if isinstance(left, Mapping):
        if _on_spark(*named_inputs(left).values()):
            return int(multijoin(left, on, **options).count())
        threads = read_threads(options.pop("threads", None))
        _refuse(**options)
        plan, several = plan_several(left, on, "inner", InputFacts(), None, "auto", {})
        return count_several(plan, several, threads)
    if _on_spark(left, right):
        from dovetail.spark import count_dataframes

        return count_dataframes(left, right, on, **options)
    threads = read_threads(options.pop("threads", None))
    _refuse(**options)
    tables = [scan(rows).to_table() for rows in (left, right)]
    condition = parse(on, tables[0].schema, tables[1].schema, in_process=True)
    batches = [one_batch(table, table.schema) for table in tables]
    with allow_threads(threads if sum(batch.num_rows for batch in batches) >= FEW_ROWS else 1):
        return count_at_rest(condition, batches[0], batches[1])


def aggregate(
    left: Any,
    right: Any,
    on: On,
    aggregates: Mapping[str, str],
    *,
    by: str | Sequence[str] | None = None,
    window: Any = None,
    **options: Any,
) -> Any:
    """Aggregates over the pairs of an inner join: `{"n": "count(*)", "total": "sum(r.amount)"}`.

    Known are count, sum, avg, min and max of expressions over one side. With `by`, a column or a list of columns of one
    side, there is a row for each group that has a pair; without it there is one row. No pair is enumerated unless a
    residual has to be checked.

    Of two streams, within a window: each row of the left stream at its arrival, with aggregates over its partners.
    """
    if _on_spark(left, right):
        from dovetail.spark import aggregate_dataframes

        return aggregate_dataframes(left, right, on, aggregates, by, window, **options)
    threads = read_threads(options.pop("threads", None))
    _refuse(window=window, **options)
    tables = [scan(rows).to_table() for rows in (left, right)]
    schemas = (tables[0].schema, tables[1].schema)
    condition = parse(on, *schemas, in_process=True)
    wanted, groups = parse_aggregates(aggregates, *schemas), parse_by(by, *schemas)
    check_names(groups, wanted)
    batches = [one_batch(table, table.schema) for table in tables]
    with allow_threads(threads if sum(batch.num_rows for batch in batches) >= FEW_ROWS else 1):
        partials = partial_aggregates(condition, wanted, groups, batches[0], batches[1])
    return pa.Table.from_batches([finish(wanted, groups, partials)])


def explain(
    left: Any,
    right: Any = None,
    on: On = None,
    how: str = "inner",
    *,
    suffix: str = "_right",
    window: Any = None,
    memory: str | int | None = "auto",
    algorithm: str = "auto",
    progressive: bool = False,
    limit: int | None = None,
    **options: Any,
) -> JoinPlan:
    """What `join` would do with the same arguments, or `progressive`, and why. Print it.

    It looks at the data as the join would: on Spark by small jobs that sample it, in process by reading the columns of
    the condition. `memory="auto"` is what the join takes by default. Options are those of the join that decide on the
    plan: parameters of the algorithm, `cells`, `sample`, `end`, `workers`.
    """
    if limit is not None:
        plan = explain(
            left,
            right,
            on,
            how,
            suffix=suffix,
            window=window,
            memory=memory,
            algorithm=algorithm,
            progressive=progressive,
            **options,
        )
        return replace(plan, limit=check_limit(limit))
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
    **options: Any,
) -> Any:
    """The inner join of three and more inputs on any condition that connects them.

        multijoin({"o": orders, "c": customers, "n": nations}, "o.custkey = c.custkey AND c.nationkey = n.nationkey")

    Spark DataFrames give a DataFrame; pyarrow, pandas or Polars tables give a pyarrow.Table. `on` is SQL text with the
    names of the inputs as aliases. The result has the columns of all inputs in their order; a name that several of them
    have becomes alias_name.

    In process, `algorithm` is "auto" (kernels that see the inputs complete, two at a time), or "miner", "mjoin" or
    "pmj", which keep to `memory` by writing rows to disk; their parameters are further options. Kernels run on all
    cores, or on as many `threads` as are allowed; the rows and their order are the same for any number.
    """
    if _on_spark(*named_inputs(inputs).values()):
        if threads is not None:
            raise PlanError("threads= is for tables in process; a DataFrame is Spark's to compute.")
        from dovetail.spark import multijoin_dataframes

        return multijoin_dataframes(inputs, on, memory_bytes=bytes_of(memory), algorithm=algorithm, **options)
    plan, tables = plan_several(inputs, on, "inner", InputFacts(), memory, algorithm, options)
    schema = multi_schema(plan.graph.schemas)
    batches = join_several(plan, tables, schema, read_threads(threads), LARGEST_BYTES)
    return pa.Table.from_batches(batches, schema)


def write(frame: Any, path: str | os.PathLike[str], mode: str = "error") -> Written:
    """Write a Spark DataFrame into a directory of Parquet files, from the tasks that compute it.

    Results of `dovetail.join` are written from Arrow to Parquet without a conversion to Spark rows; any
    other DataFrame is written as well. Readers see nothing until everything is written, whatever fails before. `mode`
    is "error" (if the path is there already), "overwrite" or "append". Gives the number of files and of rows.
    """
    if not type(frame).__module__.startswith("pyspark.sql"):
        raise InputError(f"dovetail.write takes a Spark DataFrame; got {type(frame).__name__}.")
    from dovetail.spark import write_dataframe

    return write_dataframe(frame, path, mode)


def _on_spark(*inputs: Any) -> bool:
    """Whether all inputs are Spark DataFrames, told without importing pyspark."""
    spark = [type(table).__module__.startswith("pyspark.sql") for table in inputs]
    if any(spark) and not all(spark):
        raise InputError("some inputs are Spark DataFrames and others are not: give all of the same kind.")
    return all(spark)


def _refuse(**options: Any) -> None:
    """Options that mean nothing for tables in process."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InputError(f"{', '.join(given)}: not an option of joins in process.")
