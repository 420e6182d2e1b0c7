"""The public calls. Each builds a request; calls.py carries it out.

Options in signatures and docstrings are written from the table in options.py by `python -m tools.write_options`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dovetail import calls, plain_sql
from dovetail.arguments import check_names
from dovetail.condition.select import OrderBy
from dovetail.core.metrics import Observer
from dovetail.errors import InputError
from dovetail.execution.steps import Step
from dovetail.monitoring.recording import Recording
from dovetail.operators.registry import parameter_names
from dovetail.request import Request
from dovetail.sources.reader import Retry
from dovetail.window import Window

if TYPE_CHECKING:
    from dovetail.spark import Written

On = str | Sequence[Any] | Any


def join(
    left: Any,
    right: Any,
    on: On = None,
    how: str = "inner",
    *,
    left_on: str | Sequence[str] | None = None,
    right_on: str | Sequence[str] | None = None,
    suffixes: Sequence[str | None] | None = None,
    indicator: bool | str = False,
    validate: str | None = None,
    top: int | None = None,
    order_by: OrderBy | None = None,
    ties: str = "any",
    suffix: str = "_right",
    columns: Sequence[str] | None = None,
    window: Window | None = None,
    memory: str | float | None = None,
    algorithm: str = "auto",
    limit: int | None = None,
    progress: bool | Observer | None = None,
    threads: int | None = None,
    to: str = "table",
    cells: int | None = None,
    sample: bool = True,
    state_dir: str | None = None,
    metrics: str = "dovetail",
    end: str | tuple[str, str] | None = None,
    latency: str | timedelta | None = None,
    share: float | None = None,
    one: str | None = None,
    tables: int | None = None,
    trusted: bool = False,
    **parameters: Any,
) -> Any:
    """Join two inputs on any condition.

    Spark DataFrames are joined on Spark and return a DataFrame (a streaming one for streams). pyarrow, pandas and
    Polars tables and Parquet files are joined in this process and return a pyarrow.Table.

    Args:
        left: A Spark DataFrame; or a pyarrow, pandas or Polars table, a path of Parquet files, a pyarrow dataset.
        right: The same kind of input.
        on: SQL text with the aliases l and r; a column of both inputs, or a list of them, which the result has once;
            pairs of columns, [("id", "order_id")]; PySpark Columns or Polars expressions.
        how: inner, left, right, full, left_semi, left_anti, or cross, which has no condition.
        left_on: In place of `on`: columns of the left input that equal those of `right_on`, as in pandas and Polars.
        right_on: In place of `on`: the columns of the right input, one for each of `left_on`.
        suffixes: In place of `suffix`: what is appended to names that clash, of left columns and of right ones, as in
            pandas.
        indicator: True adds a column `_merge` that says where a row has its values from: "left_only", "right_only" or
            "both". Text is another name for it.
        validate: Tables at rest: "1:1", "1:m" or "m:1" checks that keys are unique on the left, on the right or on both
            before the join, which must be on equalities; "m:m" checks nothing.
        top: Only the best partners of each left row: this many, the first by `order_by`. For inner and left joins.
        order_by: `top`: which partners come first: "abs(l.t - r.t)", "r.y DESC", or a list of these, over the right
            side or both. Nulls come last. Without it any partner will do.
        ties: "any" for no more partners than that, "all" also for those that are equal to the last of them in the
            order.
        suffix: Appended to the names of right columns that clash with a left one.
        columns: The columns of the result, by their names there and in this order; by default all. No others are read,
            unless the condition needs them.
        window: Two streams: `dovetail.window(...)`; only rows within the window of each other are joined.
        memory: What each cell may keep in memory, such as "256MB"; further rows are spilled to disk.
        algorithm: "auto", or the name of an algorithm; then its parameters can be given as well.
        limit: How many rows of the result are enough, whichever they are. The join stops when it has them, on Spark in
            every task. For streams it counts all rows, also those of a query that is started again.
        progress: Tables in process: False for no bar, True for one in any case, or a function that is called with
            `Progress`. By default a join of more than a second shows a bar on a terminal and in a notebook. A reader
            takes a function only.
        threads: Tables in process: how many; all cores by default. Rows and their order are the same for any number.
        to: Tables in process: "table", or "reader" for a pyarrow.RecordBatchReader, which joins as it is read: for
            results larger than memory.
        cells: DataFrames: into how many cells the join is divided; by default a sample decides.
        sample: DataFrames at rest: whether the inputs are sampled first, which balances cells and skips those without
            matches.
        state_dir: Streams: where state is kept, a path or a URI that all workers share and that outlives restarts.
        metrics: Streams: the name of the join in the query's progress.
        end: Streams that end: a SQL predicate that is true of the last row of an input, a pair of them, "source" for
            Dovetail's sources, or "available" if the data that is there now is complete.
        latency: Streams that end: how long rows may wait for background work to pause, such as "1 second".
        share: algorithm='diag': the window, as a share of the side with the unique key.
        one: algorithm='diag': the side with the unique key, "left" or "right".
        tables: algorithm='diag': into how many tables the window is divided.
        trusted: DataFrames: text (`on`, `end`, `order_by`) may call every function, also those with side effects such
            as `java_method`, and functions of your own. Give it for text of your own only.
        **parameters: Parameters of the named algorithm, such as algorithm="rpj", n_flush=0.1.

    Returns:
        The left columns, then the right ones: a DataFrame, a pyarrow.Table or a pyarrow.RecordBatchReader.

    Raises:
        ConditionError: The condition cannot be read, or names an unknown column.
        InputError: An argument is invalid. ArgumentError if the call has no argument of that name.
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
    return calls.join(_request("join", locals()))


def progressive(
    left: Any,
    right: Any = None,
    on: On = None,
    how: str = "inner",
    *,
    left_on: str | Sequence[str] | None = None,
    right_on: str | Sequence[str] | None = None,
    suffixes: Sequence[str | None] | None = None,
    suffix: str = "_right",
    memory: str | float | None = "256MB",
    algorithm: str = "auto",
    wait_ms: float = 0.0,
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
    """Join, and return results as they are found: an iterator of steps with new rows, the phase and the result count.

    Tables are read in small batches, alternating between the inputs. Other inputs are read in their own threads, with
    backpressure. While no rows arrive, the join processes spilled rows (phase `reactive`). Breaking out of the loop
    stops the threads, closes the sources and frees memory and files.

    DataFrames at rest are joined in waves of small jobs: cells with the most expected results first, and an estimate
    after each wave.

    Args:
        left: A table, Parquet files, a pyarrow RecordBatchReader, an iterator of record batches with a `schema`, a
            source such as `dovetail.sources.flight`, or a Spark DataFrame at rest. Three and more inputs are a
            dictionary: progressive({"o": orders, "c": customers, "n": nations}, on="...").
        right: The other input.
        on: The condition, as for `join`.
        how: inner, left, right, full, left_semi, left_anti or cross; of DataFrames inner.
        left_on: In place of `on`: columns of the left input that equal those of `right_on`, as in pandas and Polars.
        right_on: In place of `on`: the columns of the right input, one for each of `left_on`.
        suffixes: In place of `suffix`: what is appended to names that clash, of left columns and of right ones, as in
            pandas.
        suffix: Appended to the names of right columns that clash with a left one.
        memory: What the join may keep in memory; None for no limit.
        algorithm: "auto", or the name of an algorithm; then its parameters can be given as well.
        wait_ms: After how long without rows the join turns to rows that it has spilled; 0: whenever no row waits.
        retry: Sources and files: how a source that fails is opened again at its position, such as
            `dovetail.sources.Retry(tries=3)`. When all tries have failed, SourceError is raised, and the steps up to
            then remain valid.
        record: A file that `dovetail watch` follows, or a `dovetail.Recording`: what the join does over time.
        workers: Two tables in process: on how many threads they are joined. A sample balances their load; each has its
            part of the memory.
        order_by: Two tables, Parquet files or DataFrames: results in order: "l.x", "r.y DESC", "l.a NULLS LAST", or a
            list of these, each over one side. They are kept in memory; with a `limit` joined only until there are
            enough rows. Nulls and NaN are ordered as in Spark, which sorts DataFrames after the join.
        limit: The iterator ends with the step that completes this number of rows.
        progress: True shows the join while it runs: a chart in a notebook, a panel on a terminal, else lines. By
            default a join of more than a second does so in a notebook only; False is never.
        aggregate: Two inputs: `{"n": "count(*)", "mean": "avg(l.fare)"}`: `step.aggregates` with bounds, instead of
            rows.
        until: 10_000 results, a relative error of 0.01, "30 seconds", or a list of these; then it stops.
        work_dir: DataFrames: a directory from which a join that was stopped resumes.
        cells: DataFrames: into how many cells the join is divided; by default a sample decides.
        seed: DataFrames: the seed of the samples.
        sample: DataFrames with `order_by`: whether the inputs are sampled first.
        share: algorithm='diag': the window, as a share of the side with the unique key.
        one: algorithm='diag': the side with the unique key, "left" or "right".
        tables: algorithm='diag': into how many tables the window is divided.
        trusted: DataFrames: text (`on`, `end`, `order_by`) may call every function, also those with side effects such
            as `java_method`, and functions of your own. Give it for text of your own only.
        **parameters: Parameters of the named algorithm, such as algorithm="pmj", fan_in=8.

    Returns:
        An iterator of steps: `batch`, `phase`, `results`, `estimate` (the expected total of results, with bounds, if
        both sizes are known; rows of sources must come in random order, and `objection` says if they do not),
        `aggregates`. In process it is also a handle: `close()`, and `memory("50MB")` for algorithms whose memory can be
        changed while they run.

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
    return calls.progressive(_request("progressive", locals()))


def count(
    left: Any,
    right: Any = None,
    on: On = None,
    *,
    left_on: str | Sequence[str] | None = None,
    right_on: str | Sequence[str] | None = None,
    threads: int | None = None,
    memory: str | float | None = None,
    algorithm: str = "auto",
    cells: int | None = None,
    sample: bool = True,
    trusted: bool = False,
    **parameters: Any,
) -> int:
    """Count the pairs of an inner join. Pairs are enumerated only if a residual has to be checked on them.

    Args:
        left: An input as for `join`. For three or more inputs, a dictionary as for `multijoin`: results are counted,
            no rows are built.
        right: The other input.
        on: The condition, as for `join`.
        left_on: In place of `on`: columns of the left input that equal those of `right_on`, as in pandas and Polars.
        right_on: In place of `on`: the columns of the right input, one for each of `left_on`.
        threads: Tables in process: how many; all cores by default.
        memory: Three and more DataFrames: as for `multijoin`.
        algorithm: Three and more DataFrames: as for `multijoin`.
        cells: DataFrames: into how many cells the join is divided; by default a sample decides.
        sample: DataFrames at rest: whether the inputs are sampled first, which balances cells and skips those without
            matches.
        trusted: DataFrames: text (`on`, `end`, `order_by`) may call every function, also those with side effects such
            as `java_method`, and functions of your own. Give it for text of your own only.
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
    return calls.count(_request("count", locals()))


def aggregate(
    left: Any,
    right: Any,
    on: On = None,
    aggregates: Mapping[str, str] | None = None,
    how: str = "inner",
    *,
    left_on: str | Sequence[str] | None = None,
    right_on: str | Sequence[str] | None = None,
    by: str | Sequence[str] | None = None,
    window: Window | None = None,
    threads: int | None = None,
    cells: int | None = None,
    sample: bool = True,
    state_dir: str | None = None,
    metrics: str = "dovetail",
    trusted: bool = False,
    **others: Any,
) -> Any:
    """Aggregate over the pairs of a join. Pairs are enumerated only if a residual has to be checked on them.

    Args:
        left: An input as for `join`.
        right: The other input.
        on: The condition, as for `join`.
        aggregates: `{"n": "count(*)", "total": "sum(r.amount)"}`: count, sum, avg, min and max of expressions over one
            side; for tables in process also min_by(r.x, r.y), max_by, first(r.x), last(r.x), and coverage(r.start,
            r.end), the length that the intervals of all partners cover together.
        how: inner, or left (tables in process), where rows without a partner have counts of 0 and nulls: a row for each
            group, without `by` for each left row, with all of its columns.
        left_on: In place of `on`: columns of the left input that equal those of `right_on`, as in pandas and Polars.
        right_on: In place of `on`: the columns of the right input, one for each of `left_on`.
        by: A column or a list of columns of one side: a row for each group that has a pair. Without it, one row.
        window: Two streams: each row of the left one at its arrival, with aggregates over its partners in the window.
        threads: Tables in process: how many; all cores by default.
        cells: DataFrames: into how many cells the join is divided; by default a sample decides.
        sample: DataFrames at rest: whether the inputs are sampled first, which balances cells and skips those without
            matches.
        state_dir: Streams: where state is kept, a path or a URI that all workers share and that outlives restarts.
        metrics: Streams: the name of the join in the query's progress.
        trusted: DataFrames: text (`on`, `end`, `order_by`) may call every function, also those with side effects such
            as `java_method`, and functions of your own. Give it for text of your own only.
        **others: Further options of `join` on Spark, which change nothing here.

    Returns:
        A pyarrow.Table; for DataFrames, a DataFrame.

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
    return calls.aggregate(_request("aggregate", locals()), aggregates)


def asof(
    left: Any,
    right: Any,
    on: Any = None,
    how: str = "left",
    *,
    by: Any = None,
    direction: str = "backward",
    tolerance: Any = None,
    exact: bool = True,
    suffix: str = "_right",
    memory: str | float | None = None,
    limit: int | None = None,
    progress: bool | Observer | None = None,
    threads: int | None = None,
    to: str = "table",
    **others: Any,
) -> Any:
    """Join each left row with the nearest right row in time: the last one up to it, or the first one from then on.

    Inputs need not be sorted. If several right rows have the same time, backward takes the last of them and forward the
    first, by position.

    Args:
        left: An input as for `join`.
        right: The same kind of input.
        on: The column of time, or of any type that has an order; a pair of names if they differ, ("ts", "time").
        how: left, or inner for those with a partner only.
        by: Columns that must be equal: a name, a pair of names if they differ, or a list of these.
        direction: "backward" for the last right row up to the left one, "forward" for the first from it on, "nearest"
            for the nearer one.
        tolerance: How far away a partner may be: a number, a timedelta, or text such as "10 minutes".
        exact: Whether a right row at the same time is a partner.
        suffix: Appended to the names of right columns that clash with a left one.
        memory: What each cell may keep in memory, such as "256MB"; further rows are spilled to disk.
        limit: How many rows of the result are enough, whichever they are. The join stops when it has them, on Spark in
            every task. For streams it counts all rows, also those of a query that is started again.
        progress: Tables in process: False for no bar, True for one in any case, or a function that is called with
            `Progress`. By default a join of more than a second shows a bar on a terminal and in a notebook. A reader
            takes a function only.
        threads: Tables in process: how many; all cores by default. Rows and their order are the same for any number.
        to: Tables in process: "table", or "reader" for a pyarrow.RecordBatchReader, which joins as it is read: for
            results larger than memory.
        **others: Further options of `join` on Spark; names of pandas' `merge_asof` and Polars' `join_asof`: left_on,
            right_on, left_by, right_by, by_left, by_right, strategy, allow_exact_matches.

    Returns:
        The columns of both inputs, in the order of the left rows: a DataFrame, a pyarrow.Table or a reader.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> trades = pa.table({"ts": [3, 7, 9], "symbol": ["A", "B", "A"]})
        >>> quotes = pa.table({"ts": [1, 2, 8], "symbol": ["A", "B", "A"], "bid": [1.5, 2.5, 1.75]})
        >>> dovetail.asof(trades, quotes, "ts", by="symbol")["bid"].to_pylist()
        [1.5, 2.5, 1.75]
        >>> dovetail.asof(trades, quotes, "ts", by="symbol", tolerance=2)["bid"].to_pylist()
        [1.5, None, 1.75]
    """
    return calls.asof(_request("asof", locals()))


def nearest(
    left: Any,
    right: Any,
    on: Any,
    how: str = "left",
    *,
    ties: str = "any",
    by: Any = None,
    k: int = 1,
    within: Any = None,
    direction: str = "both",
    suffix: str = "_right",
    memory: str | float | None = None,
    limit: int | None = None,
    progress: bool | Observer | None = None,
    threads: int | None = None,
    to: str = "table",
    **others: Any,
) -> Any:
    """Join each left row with its `k` nearest right rows.

    Args:
        left: An input as for `join`.
        right: The same kind of input.
        on: A column of numbers or times; a list of columns for points, ["x", "y"]; a pair for intervals, ("start",
            "end"), which are 0 apart where they overlap or touch; or a column of lists for vectors. In place of each
            name a pair of names if they differ, [("x", "lon"), ("y", "lat")].
        how: left, or inner for those with a partner only.
        ties: "any" for no more partners than that, "all" also for those that are equal to the last of them in the
            order.
        by: Columns that must be equal: a name, a pair of names if they differ, or a list of these.
        k: How many partners of each left row.
        within: How far away a partner may be: a number, or for times a timedelta or text such as "10 minutes".
        direction: Intervals: "upstream" for those that end before the left one starts, "downstream" for those that
            start after it has ended.
        suffix: Appended to the names of right columns that clash with a left one.
        memory: What each cell may keep in memory, such as "256MB"; further rows are spilled to disk.
        limit: How many rows of the result are enough, whichever they are. The join stops when it has them, on Spark in
            every task. For streams it counts all rows, also those of a query that is started again.
        progress: Tables in process: False for no bar, True for one in any case, or a function that is called with
            `Progress`. By default a join of more than a second shows a bar on a terminal and in a notebook. A reader
            takes a function only.
        threads: Tables in process: how many; all cores by default. Rows and their order are the same for any number.
        to: Tables in process: "table", or "reader" for a pyarrow.RecordBatchReader, which joins as it is read: for
            results larger than memory.
        **others: Further options of `join` on Spark.

    Returns:
        The columns of both inputs, in the order of the left rows, nearest partner first: a DataFrame, a
        pyarrow.Table or a reader.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> homes = pa.table({"x": [0.0, 5.0], "y": [0.0, 5.0]})
        >>> stations = pa.table({"x": [1.0, 4.0, 9.0], "y": [1.0, 4.0, 9.0], "name": ["a", "b", "c"]})
        >>> dovetail.nearest(homes, stations, ["x", "y"])["name"].to_pylist()
        ['a', 'b']
    """
    return calls.nearest(_request("nearest", locals()))


def explain(
    left: Any,
    right: Any = None,
    on: On = None,
    how: str = "inner",
    *,
    left_on: str | Sequence[str] | None = None,
    right_on: str | Sequence[str] | None = None,
    suffixes: Sequence[str | None] | None = None,
    indicator: bool | str = False,
    validate: str | None = None,
    top: int | None = None,
    order_by: OrderBy | None = None,
    ties: str = "any",
    by: Any = None,
    direction: str = "auto",
    tolerance: Any = None,
    exact: bool = True,
    k: int = 1,
    within: Any = None,
    suffix: str = "_right",
    columns: Sequence[str] | None = None,
    window: Window | None = None,
    memory: str | float | None = "auto",
    algorithm: str = "auto",
    of: str = "join",
    progressive: bool = False,
    wait_ms: float = 0.0,
    retry: Retry | None = None,
    record: Recording | str | os.PathLike[str] | None = None,
    workers: int = 1,
    limit: int | None = None,
    progress: bool | Observer | None = None,
    threads: int | None = None,
    to: str = "table",
    aggregate: Mapping[str, str] | None = None,
    until: Any = None,
    work_dir: str | None = None,
    cells: int | None = None,
    seed: int = 0,
    sample: bool = True,
    state_dir: str | None = None,
    metrics: str = "dovetail",
    end: str | tuple[str, str] | None = None,
    latency: str | timedelta | None = None,
    share: float | None = None,
    one: str | None = None,
    tables: int | None = None,
    trusted: bool = False,
    **parameters: Any,
) -> Any:
    """Explain what `join` or `progressive` would do with the same arguments, and why. Nothing is joined.

    It looks at the data as the join would: on Spark it runs small sampling jobs, in process it reads the columns of the
    condition. Print the plan, or show it in a notebook.

    For a single Spark DataFrame, it says which joins of its query Dovetail runs (see `enable`), which it leaves to
    Spark and why, and roughly what each would cost. This reads no rows.

    Args:
        left: An input as for `join` or `progressive`; a dictionary of three or more inputs; or a single query.
        right: The other input.
        on: The condition.
        how: The join type.
        left_on: As for `join`.
        right_on: As for `join`.
        suffixes: As for `join`.
        indicator: As for `join`.
        validate: As for `join`.
        top: As for `join`.
        order_by: As for `join`.
        ties: As for `join`.
        by: As for `asof`.
        direction: As for `asof`.
        tolerance: As for `asof`.
        exact: As for `asof`.
        k: As for `nearest`.
        within: As for `nearest`.
        suffix: As for `join`.
        columns: As for `join`.
        window: As for `join`.
        memory: As for `join`.
        algorithm: As for `join`.
        of: The call that the plan is of: "join", "asof" or "nearest".
        progressive: Whether the plan is that of `dovetail.progressive`.
        wait_ms: As for `progressive`.
        retry: As for `progressive`.
        record: As for `progressive`.
        workers: As for `progressive`.
        limit: As for `join`.
        progress: As for `join`.
        threads: As for `join`.
        to: As for `join`.
        aggregate: As for `progressive`.
        until: As for `progressive`.
        work_dir: As for `progressive`.
        cells: As for `join`.
        seed: As for `progressive`.
        sample: As for `join`.
        state_dir: As for `join`.
        metrics: As for `join`.
        end: As for `join`.
        latency: As for `join`.
        share: As for `join`.
        one: As for `join`.
        tables: As for `join`.
        trusted: As for `join`.
        **parameters: Parameters of the named algorithm.

    Returns:
        The plan: `print(plan)` has a line for each decision, and a notebook shows a picture of it. For a single
        DataFrame, the joins of its query.

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
    if right is None and on is None and not isinstance(left, Mapping):
        return calls.explain_query(left)
    return calls.explain(_request("explain", locals()))


def multijoin(
    inputs: Mapping[str, Any],
    on: str | Sequence[str],
    *,
    memory: str | float | None = None,
    algorithm: str = "auto",
    threads: int | None = None,
    cells: int | None = None,
    sample: bool = True,
    state_dir: str | None = None,
    metrics: str = "dovetail",
    end: str | Mapping[str, str] | None = None,
    latency: str | timedelta | None = None,
    trusted: bool = False,
    **parameters: Any,
) -> Any:
    """Inner join of three or more inputs on any condition that connects them.

    Args:
        inputs: The inputs by name: all Spark DataFrames, or all tables in process.
        on: SQL text with these names as aliases, or a list of conditions.
        memory: What each cell may keep in memory, such as "256MB"; further rows are spilled to disk.
        algorithm: In process "auto" (kernels that see the inputs complete, two at a time), or "miner", "mjoin" or
            "pmj", which keep to `memory` by spilling to disk. Streams that end are joined by "miner".
        threads: Tables in process: how many; all cores by default. Rows and their order are the same for any number.
        cells: DataFrames: into how many cells the join is divided; by default a sample decides.
        sample: DataFrames at rest: whether the inputs are sampled first, which balances cells and skips those without
            matches.
        state_dir: Streams: where state is kept, a path or a URI that all workers share and that outlives restarts.
        metrics: Streams: the name of the join in the query's progress.
        end: Streams that end: what is true of the last row of an input, a dictionary with one for each, "source" or
            "available", as for `join`.
        latency: Streams that end: how long rows may wait for background work to pause, such as "1 second".
        trusted: DataFrames: text (`on`, `end`, `order_by`) may call every function, also those with side effects such
            as `java_method`, and functions of your own. Give it for text of your own only.
        **parameters: Parameters of the named algorithm.

    Returns:
        The columns of all inputs in their order; a name that several of them have becomes `alias_name`.

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
    return calls.multijoin(_request("multijoin", locals()))


@check_names
def write(frame: Any, path: str | os.PathLike[str], mode: str = "error") -> Written:
    """Write a Spark DataFrame into a directory of Parquet files, from the tasks that compute it.

    Results of `dovetail.join` are written from Arrow to Parquet without a conversion to Spark rows. Any other DataFrame
    can be written as well. Readers see nothing until everything is written, also if tasks fail.

        dovetail.write(dovetail.join(orders, items, "l.id = r.order_id"), "joined/", mode="overwrite")

    Args:
        frame: A DataFrame at rest.
        path: The directory.
        mode: "error" (if the path is there already), "overwrite" or "append".

    Returns:
        The number of files and rows.
    """
    if not type(frame).__module__.startswith("pyspark.sql"):
        raise InputError(f"dovetail.write takes a Spark DataFrame; got {type(frame).__name__}.")
    from dovetail.spark import write_dataframe

    return write_dataframe(frame, path, mode)


def sql(spark: Any, query: str | None = None, /, **tables: Any) -> Any:
    """Run a SQL query with its joins done by Dovetail.

    With a Spark session, joins without an equality are found in the text and run by `dovetail.join`. Spark runs
    everything else, and any part that is not understood. Use it on Spark Connect and serverless Spark; on a classic
    session, `dovetail.enable` does the same for all queries. Until the result is used, only the inputs of a join are
    sampled.

    Without a session, tables and files are joined in this process: SELECT with joins, WHERE, GROUP BY, HAVING, ORDER BY
    and LIMIT.

    Args:
        spark: A Spark session; or the query, for tables in process.
        query: The text of the query, in Spark's SQL.
        **tables: The tables of the query by name: pyarrow, pandas and Polars tables and paths of files. On Spark
            DataFrames, beside the views and tables that the session knows.

    Returns:
        A Spark DataFrame, a streaming one if an input streams. In process a pyarrow.Table, or a DataFrame of pandas or
        Polars if all tables are of that library.

    Raises:
        ConditionError: A condition or an expression cannot be read or evaluated.
        InputError: A table is missing, or a part of the query is not supported for tables in process.

    Example:
        >>> import dovetail, pyarrow as pa
        >>> trips = pa.table({"trip": ["a", "b", "c"], "km": [2, 7, 4]})
        >>> fares = pa.table({"up_to": [5, 10], "price": [3.0, 4.5]})
        >>> text = "SELECT price, count(*) AS n FROM trips JOIN fares ON km < up_to GROUP BY price ORDER BY price"
        >>> dovetail.sql(text, trips=trips, fares=fares).to_pylist()
        [{'price': 3.0, 'n': 2}, {'price': 4.5, 'n': 3}]
    """
    return plain_sql.sql(spark, query, tables)


def _request(call: str, arguments: Mapping[str, Any]) -> Request:
    return Request.read(call, arguments, parameter_names)
