"""What `dovetail join` and `dovetail explain` do with a request: check it, plan it, run it, write the result."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console

from dovetail import api
from dovetail.cli.results import GROUP_ROWS, PARQUET, Target, open_writer
from dovetail.cli.selection import Selection
from dovetail.condition import parse
from dovetail.core.addresses import parse_address, redacted
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Observer, Progress
from dovetail.core.owned_directories import remove_owned, temporary_directory
from dovetail.core.tables import dataset_of, format_of, input_path, plain_schema
from dovetail.errors import InputError
from dovetail.execution.in_process import Step
from dovetail.execution.output import output_schema
from dovetail.monitoring.progress_bar import watched
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.report import report as write_report
from dovetail.monitoring.server import announce, watch
from dovetail.monitoring.terminal import show
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts, Unseen, plan_join
from dovetail.sources import Source, flight
from dovetail.storage.budget import parse_bytes

REMOTE = re.compile(r"grpc(\+\w+)?:", re.IGNORECASE)


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
        """A recording for those who look; what they see last is its end."""
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


class Request(NamedTuple):
    """What to join, and how."""

    left: str
    right: str
    on: str
    how: str
    suffix: str
    memory: str | None
    algorithm: str
    in_process: bool
    as_it_comes: bool = False  # joined as it is read, in process
    limit: int | None = None  # rows of the result that are enough
    select: str | None = None  # columns of the result

    def check(self) -> None:
        """Find everything that can be wrong with a request before Spark starts, by planning it without data."""
        schemas = self.schemas()
        if not self.in_process and not self.as_it_comes:
            for place in (self.left, self.right):
                _check_for_spark(input_path(place))
        condition = parse(self.on, schemas[0], schemas[1], in_process=self.in_process)
        facts = InputFacts(
            "progressive" if self.as_it_comes else "at_rest",
            on_spark=not self.in_process,
            diagonal=Unseen() if self.is_at_rest() else None,
        )
        memory_bytes = None if self.memory is None else parse_bytes(self.memory)
        plan = plan_join(condition, self.how, facts, algorithm=self.algorithm, memory_bytes=memory_bytes)
        self.selection(schemas, plan.how)

    def selection(self, schemas: Sequence[pa.Schema], how: JoinType) -> Selection:
        """The columns that are wanted."""
        return Selection.read(self.select, (schemas[0], schemas[1]), self.suffix, how)

    def schemas(self) -> list[pa.Schema]:
        return [
            source.schema if (source := _remote(place)) is not None else dataset_of(input_path(place)).schema
            for place in (self.left, self.right)
        ]

    def is_at_rest(self) -> bool:
        """Whether rows can be read by position: of tables in process, of Parquet files on Spark."""
        if any_remote(self.left, self.right):
            return False
        return self.in_process or all(format_of(input_path(place)) == "parquet" for place in (self.left, self.right))

    def inputs(self) -> list[Any]:
        """What is joined in process: remote sources and Parquet files are read as it goes, other files before."""
        return [_remote(place) or _file(input_path(place)) for place in (self.left, self.right)]

    def frames(self, spark: Any) -> list[Any]:
        """What is joined on Spark."""
        return [
            spark.read.format(format_of(path)).options(**_options(path)).load(str(path))
            for path in map(input_path, (self.left, self.right))
        ]

    def explain(self, left: Any, right: Any) -> JoinPlan:
        """The plan of the join, with what the data tells."""
        return api.explain(
            left,
            right,
            self.on,
            self.how,
            suffix=self.suffix,
            memory=self.memory or "auto",
            algorithm=self.algorithm,
            progressive=self.as_it_comes,
        )

    def join(self, left: Any, right: Any, progress: Observer | None = None) -> Any:
        return api.join(
            left,
            right,
            self.on,
            self.how,
            suffix=self.suffix,
            memory=self.memory,
            algorithm=self.algorithm,
            limit=self.limit,
            progress=progress or False,
            to="reader" if self.in_process else "table",
        )

    def steps(self, recording: Recording) -> Iterator[Step]:
        """Results as they come."""
        left, right = self.inputs()
        return api.progressive(
            left,
            right,
            self.on,
            self.how,
            suffix=self.suffix,
            memory=self.memory or api.EARLY_MEMORY,
            algorithm=self.algorithm,
            limit=self.limit,
            record=recording,
        )


class Outcome(NamedTuple):
    rows: int
    is_cut: bool = False  # there are more than a table for people has


class Interrupted(Exception):  # noqa: N818  not an error
    """Ctrl-C, and what has become of the rows that were found."""


class Interrupts:
    """Lets Ctrl-C stop a join while rows are awaited; what was found before is written, whole rows only."""

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
    request: Request,
    target: Target,
    options: MonitorOptions,
    console: Console,
    *,
    overwrite: bool = False,
    progress: bool | None = None,
) -> Outcome:
    """Join, write, and return how many rows there are."""
    request.check()
    target.check(overwrite=overwrite, inputs=(request.left, request.right))
    shown = target.rows_for_people if request.limit is None else None
    if shown is not None:  # one more says whether there are more
        request = request._replace(limit=shown + 1)
    work = JoinToWrite(request, target, console, shown)
    target.check_schema(work.schema())
    try:
        if request.as_it_comes:
            return work.join_watched(options)
        with watched(progress) as observer:
            return work.join_in_process(observer) if request.in_process else work.join_on_spark(observer)
    except KeyboardInterrupt:
        if target.path is not None:  # what Spark could not remove any more
            shutil.rmtree(target.path / "_temporary", ignore_errors=True)
        nothing = "" if target.path is None else f"nothing was written to {target.path}; "
        raise Interrupted(f"interrupted: {nothing}the join is not complete") from None


def explain_join(request: Request) -> JoinPlan:
    """The plan of the join, with what the data tells."""
    request.check()
    if request.in_process:
        return request.explain(*request.inputs())
    from dovetail.spark.session.session import session_for_now

    with session_for_now() as spark:
        return request.explain(*request.frames(spark))


class JoinToWrite(NamedTuple):
    """A request that is carried out."""

    request: Request
    target: Target
    console: Console
    shown: int | None  # rows of a table for people

    def join_in_process(self, observer: Observer | None) -> Outcome:
        (observer or _nobody)(Progress("reading"))
        left, right = self.request.inputs()
        result = self.request.join(left, right, observer)
        return self._write(iter(result), result.schema)

    def join_watched(self, options: MonitorOptions) -> Outcome:
        with options.recording() as recording:
            batches = (step.batch for step in self.request.steps(recording))
            return self._write(batches, self._result_schema())

    def join_on_spark(self, observer: Observer | None) -> Outcome:
        """Spark writes Parquet into a directory itself; what else there is, is made of such files."""
        from dovetail.spark.session.session import session_for_now

        observe = observer or _nobody
        observe(Progress("starting Spark"))
        with session_for_now() as spark:
            left, right = self.request.frames(spark)
            observe(Progress("joining"))
            joined = self._selection().of_frame(self.request.join(left, right))
            if self.target.path is not None and self.target.format == PARQUET:
                joined.write.mode("overwrite").parquet(str(self.target.path))
                return Outcome(spark.read.parquet(str(self.target.path)).count())
            directory = temporary_directory()
            try:
                place = str(directory / "result")
                joined.write.mode("overwrite").parquet(place)
                found = ds.dataset(place, schema=plain_schema(ds.dataset(place).schema))
                everything = Selection(list(range(len(found.schema))), found.schema.names)
                return self._write(iter(found.to_batches()), found.schema, everything)
            finally:
                remove_owned(directory)

    def schema(self) -> pa.Schema:
        """The columns that are written."""
        return self._selection().of_schema(self._result_schema())

    def _result_schema(self) -> pa.Schema:
        left, right = (plain_schema(schema) for schema in self.request.schemas())
        return output_schema(left, right, self.request.suffix, JoinType.read(self.request.how))

    def _selection(self) -> Selection:
        return self.request.selection(self.request.schemas(), JoinType.read(self.request.how))

    def _write(
        self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, selection: Selection | None = None
    ) -> Outcome:
        """All results; after Ctrl-C those that were found, unless they would take the place of an earlier result."""
        selection = selection or self._selection()
        rows, left, has_result, is_stopped = 0, self.shown, self.target.has_result, False
        path = self.target.path
        with Interrupts() as interrupts, open_writer(self.target, selection.of_schema(schema), self.console) as write:
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


def _in_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The same rows in groups, of which there is at least one; after Ctrl-C, those that have come."""
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


def any_remote(*places: str) -> bool:
    """Whether any of the places is a dataset of a Flight server."""
    return any(REMOTE.match(place) for place in places)


def _remote(place: str) -> Source | None:
    """A dataset of a Flight server, where the place is one."""
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
    return path if format_of(path) == "parquet" else dataset_of(path).to_table()


def _check_for_spark(path: Path) -> None:
    """Spark reads no timestamps with nanoseconds, as pandas writes them; it says so when it has started."""
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


def _nobody(_: Progress) -> None:
    """Looks the other way."""


def _options(path: Path) -> dict[str, str]:
    return {"header": "true", "inferSchema": "true"} if format_of(path) == "csv" else {}
