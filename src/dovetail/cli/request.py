"""Carries out `dovetail join` and `dovetail explain`: check the request, plan it, run it, write the result."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from dovetail import calls
from dovetail.cli.early_checks import any_remote
from dovetail.cli.results import GROUP_ROWS, PARQUET, Target, open_writer
from dovetail.cli.selection import Selection
from dovetail.cli.table import ColumnOfResult, show_table
from dovetail.cli.without_pandas import allow_pandas
from dovetail.condition import columns_of, parse
from dovetail.core.addresses import parse_address, redacted
from dovetail.core.file_formats import format_of, input_path
from dovetail.core.metrics import Observer, Progress
from dovetail.core.owned_directories import remove_owned, temporary_directory
from dovetail.core.rows import Side
from dovetail.core.tables import dataset_of, plain_schema, read_table
from dovetail.errors import InputError
from dovetail.monitoring.progress_bar import watched
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.report import report as write_report
from dovetail.monitoring.server import announce, watch
from dovetail.monitoring.terminal import show
from dovetail.operators.registry import parameter_names
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts, Unseen, plan_join
from dovetail.request import Request
from dovetail.result_columns import ResultColumns
from dovetail.sources import Source, flight
from dovetail.storage.budget import bytes_of


class MonitorOptions(NamedTuple):
    """How a join is monitored while it runs, and reported afterwards."""

    live: bool
    watch: bool
    port: int
    record: Path | None
    report: Path | None

    @property
    def wanted(self) -> bool:
        return self.live or self.watch or self.record is not None or self.report is not None

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """A recording for the chosen monitors. The last thing they see is its end."""
        recording = Recording(self.record)
        try:
            with ExitStack() as stack:
                server = stack.enter_context(watch(recording, self.port)) if self.watch else None
                if server is not None:
                    announce(server.url)
                if self.live:
                    stack.enter_context(show(recording))
                yield recording
                if server is not None:
                    server.wait_for_readers()
        finally:
            if self.report is not None and recording.heading is not None:
                write_report(recording, self.report)


class JoinCommand(NamedTuple):
    """A request whose inputs are files or remote datasets, given by their locations."""

    request: Request
    in_process: bool
    select: str | None = None  # columns of the result

    @classmethod
    def read(
        cls,
        places: tuple[str, str],
        on: str,
        how: str,
        *,
        in_process: bool,
        as_it_comes: bool = False,
        select: str | None = None,
        **options: Any,
    ) -> JoinCommand:
        """The request, with the options that are not None. `as_it_comes`: joined while it is read, in process."""
        call, given = (
            "progressive" if as_it_comes else "join",
            {name: v for name, v in options.items() if v is not None},
        )
        arguments = {"left": places[0], "right": places[1], "on": on, "how": how, **given}
        return cls(Request.read(call, arguments, parameter_names), in_process or as_it_comes, select)

    @property
    def places(self) -> tuple[str, ...]:
        return self.request.input_list

    @property
    def as_it_comes(self) -> bool:
        return self.request.call == "progressive"

    def check(self) -> None:
        """Find all errors in a request before Spark starts, by planning it without data."""
        schemas, request = self.schemas(), self.request
        if not self.in_process:
            for place in self.places:
                _check_for_spark(input_path(place))
        condition = parse(request.on, schemas[0], schemas[1], in_process=self.in_process)
        facts = InputFacts(
            "progressive" if self.as_it_comes else "at_rest",
            on_spark=not self.in_process,
            diagonal=Unseen() if self.is_at_rest() else None,
        )
        memory_bytes = bytes_of(request.memory)
        plan_join(condition, request.how, facts, algorithm=request.algorithm, memory_bytes=memory_bytes)
        self.selection(schemas)

    def columns(self, schemas: Sequence[pa.Schema]) -> ResultColumns:
        """The columns of the result."""
        return ResultColumns.of(self.request, schemas[0], schemas[1])

    def selection(self, schemas: Sequence[pa.Schema]) -> Selection:
        """The selected columns."""
        return Selection.read(self.select, self.columns(schemas))

    def schemas(self) -> list[pa.Schema]:
        return [
            source.schema if (source := _remote(place)) is not None else dataset_of(input_path(place)).schema
            for place in self.places
        ]

    def is_at_rest(self) -> bool:
        """Whether rows can be read by position: tables in process, Parquet files on Spark."""
        if any_remote(*self.places):
            return False
        return self.in_process or all(format_of(input_path(place)) == "parquet" for place in self.places)

    def of_files(self, **options: Any) -> Request:
        """The request in process: remote sources and Parquet files are read during the join, other files before."""
        inputs = tuple(_remote(place) or _file(input_path(place)) for place in self.places)
        return replace(self.request, inputs=inputs).but(**options)

    def of_frames(self, spark: Any) -> Request:
        """The request on Spark."""
        frames = (
            spark.read.format(format_of(path)).options(**_options(path)).load(str(path))
            for path in map(input_path, self.places)
        )
        return replace(self.request, inputs=tuple(frames))


class Outcome(NamedTuple):
    rows: int
    is_cut: bool = False  # the table on the terminal does not show all rows
    left_out: str = ""  # the message about columns that did not fit


class Interrupted(Exception):  # noqa: N818  not an error
    """Ctrl-C was pressed. The message says what happened to the rows found so far."""


class Interrupts:
    """Lets Ctrl-C stop a join while it waits for rows. Rows found before that are written, whole rows only."""

    def __init__(self) -> None:
        self._is_awaiting = self._came = False

    def await_each(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while (batch := self._await(batches)) is not None:
            yield batch

    def _await(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        self._is_awaiting = True
        try:
            if self._came:
                raise KeyboardInterrupt
            return next(batches, None)
        finally:
            self._is_awaiting = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        if self._is_awaiting:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)


def run_join(
    command: JoinCommand,
    target: Target,
    options: MonitorOptions,
    console: Console,
    *,
    overwrite: bool = False,
    progress: bool | None = None,
) -> Outcome:
    """Join, write, and return the number of rows."""
    command.check()
    target.check(overwrite=overwrite, inputs=command.places)
    shown = target.rows_for_people if command.request.limit is None else None
    if shown is not None:  # one more shows whether there are more
        command = command._replace(request=command.request.but(limit=shown + 1))
    work = JoinToWrite(command, target, [], shown)
    target.check_schema(work.schema())
    if target.prints_lines and sys.stdout.isatty():  # the progress display would draw over them
        progress = False
    try:
        if command.as_it_comes:
            outcome = work.join_watched(options)
        else:
            with watched(progress) as observer:
                outcome = work.join_in_process(observer) if command.in_process else work.join_on_spark(observer)
    except KeyboardInterrupt:
        if target.path is not None:  # temporary files that Spark could not remove any more
            shutil.rmtree(target.path / "_temporary", ignore_errors=True)
        nothing = "" if target.path is None else f"nothing was written to {target.path}; "
        raise Interrupted(f"interrupted: {nothing}the join is not complete") from None
    finally:  # after all other drawing has stopped
        said = [show_table(rows, console, work.columns()) for rows in work.for_people]
    return outcome._replace(left_out="".join(said))


def explain_join(command: JoinCommand) -> JoinPlan:
    """The plan of the join, using the data."""
    command.check()
    if command.in_process:
        return calls.explain(command.of_files())
    with _spark() as spark:
        return calls.explain(command.of_frames(spark))


class JoinToWrite(NamedTuple):
    """A command while it runs."""

    command: JoinCommand
    target: Target
    for_people: list[pa.Table]  # rows to show on the terminal at the end
    shown: int | None  # how many rows to show

    def join_in_process(self, observer: Observer | None) -> Outcome:
        (observer or _unobserved)(Progress("reading"))
        result = calls.join(self.command.of_files(to="reader", progress=observer))
        return self._write(iter(result), result.schema)

    def join_watched(self, options: MonitorOptions) -> Outcome:
        with options.recording() as recording:
            steps = calls.progressive(self.command.of_files(record=recording))
            batches = (step.batch for step in steps)
            return self._write(batches, self._result_schema())

    def join_on_spark(self, observer: Observer | None) -> Outcome:
        """Join on Spark. Spark writes Parquet into a directory itself; other formats are converted from such files."""
        observe = observer or _unobserved
        observe(Progress("starting Spark"))
        with _spark() as spark, _plain_instants(spark):
            request = self.command.of_frames(spark)
            observe(Progress("joining"))
            joined = self._selection().of_frame(calls.join(request))
            if self.target.path is not None and self.target.format == PARQUET and not self.target.is_file:
                joined.write.mode("overwrite").parquet(str(self.target.path))
                return Outcome(spark.read.parquet(str(self.target.path)).count())
            directory = temporary_directory()
            try:
                place = str(directory / "result")
                joined.write.mode("overwrite").parquet(place)
                found = dataset_of(Path(place))
                found = found.replace_schema(plain_schema(found.schema))
                everything = Selection(list(range(len(found.schema))), found.schema.names)
                return self._write(iter(found.to_batches()), found.schema, everything)
            finally:
                remove_owned(directory)

    def schema(self) -> pa.Schema:
        """The columns to write."""
        return self._selection().of_schema(self._result_schema())

    def _result_schema(self) -> pa.Schema:
        return self.command.columns([plain_schema(schema) for schema in self.command.schemas()]).schema

    def _selection(self) -> Selection:
        return self.command.selection(self.command.schemas())

    def _write(
        self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, selection: Selection | None = None
    ) -> Outcome:
        """Write all results. After Ctrl-C write the rows found so far, unless that would replace an earlier result."""
        selection = selection or self._selection()
        rows, left, has_result, is_stopped = 0, self.shown, self.target.has_result, False
        path, show = self.target.path, self.for_people.append
        with Interrupts() as interrupts, open_writer(self.target, selection.of_schema(schema), show) as write:
            try:
                for group in _in_groups(interrupts.await_each(batches), schema):
                    written = group if left is None else group.slice(0, left)
                    left = None if left is None else left - written.num_rows
                    write(selection.of_table(written))
                    rows += group.num_rows
            except KeyboardInterrupt:
                if not rows:
                    raise
                if has_result:
                    raise Interrupted(
                        f"interrupted: the earlier result in {path} was kept; {rows:,} rows found so far were not"
                    ) from None
                is_stopped = True
        if is_stopped:
            where = "found so far" if path is None else f"found so far are in {path}"
            raise Interrupted(f"interrupted: {rows:,} rows {where}; the join is not complete")
        is_cut = self.shown is not None and rows > self.shown
        return Outcome(self.shown if is_cut and self.shown is not None else rows, is_cut)

    def columns(self) -> list[ColumnOfResult]:
        """For each shown column: the input that it comes from, and whether the condition uses it."""
        request = self.command.request
        left, right = (plain_schema(schema) for schema in self.command.schemas())
        condition = parse(request.on, left, right, in_process=self.command.in_process)
        parts = (*condition.conjuncts, *condition.filters[0], *condition.filters[1])
        keys = {(column.side, column.name) for part in parts for column in columns_of(part)}
        columns = self.command.columns((left, right))
        named = {
            place: (side, columns.schemas[side].names[own])
            for side in reversed(Side)  # a column of both inputs counts as the left one's
            for own, place in columns.places_of(side)
        }
        found = (named[position] for position in self._selection().positions)
        return [ColumnOfResult(side is Side.RIGHT, (side, name) in keys) for side, name in found]


def _in_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The same rows in groups, at least one. After Ctrl-C, the rows that have arrived."""
    waiting: list[pa.RecordBatch] = []
    try:
        for batch in batches:
            waiting.append(batch)
            if sum(batch.num_rows for batch in waiting) >= GROUP_ROWS:
                yield pa.Table.from_batches(waiting, schema)
                waiting.clear()
    except KeyboardInterrupt:
        yield pa.Table.from_batches(waiting, schema)
        raise
    yield pa.Table.from_batches(waiting, schema)


def _remote(place: str) -> Source | None:
    """The dataset of a Flight server, if the location is one."""
    if not any_remote(place):
        return None
    found = parse_address(place)
    if (
        found is None
        or found.query is not None
        or found.fragment is not None
        or found.has_doubtful_path
        or not (found.host and found.path.strip("/"))
    ):
        raise InputError(f"{redacted(place)}: a dataset of a Flight server is grpc://host:port/name.")
    user = "" if found.user is None else f"{found.user}@"
    return flight(f"{found.scheme}://{user}{found.host}", unquote(found.path[1:]))


def _file(path: Path) -> Any:
    return path if format_of(path) == "parquet" else read_table(path)


def _check_for_spark(path: Path) -> None:
    """Refuse nanosecond timestamps, as pandas writes them. Spark would refuse them too, but only after it started."""
    if format_of(path) != "parquet":
        return
    file = path if path.is_file() else min(path.rglob("*.parquet"))
    columns = pq.read_metadata(file).schema
    for column in map(columns.column, range(len(columns))):
        if column.physical_type == "INT64" and "nanoseconds" in str(column.logical_type):
            raise InputError(
                f"{path}: column {column.path} has timestamps with nanoseconds, which Spark cannot read. Join it in "
                "process (--in-process), or write the file with microseconds."
            )


@contextmanager
def _spark() -> Iterator[Any]:
    allow_pandas()
    from dovetail.spark.session.session import session_for_now

    with session_for_now() as session:
        yield session


@contextmanager
def _plain_instants(spark: Any) -> Iterator[None]:
    """Spark writes instants as other programs do. Its default, INT96, has no time zone."""
    name = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(name)
    spark.conf.set(name, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _unobserved(_: Progress) -> None:
    """An observer that does nothing."""


def _options(path: Path) -> dict[str, str]:
    return {"header": "true", "inferSchema": "true"} if format_of(path) == "csv" else {}
