"""What `dovetail join` and `dovetail explain` do with a request: check it, plan it, run it, write the result."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dovetail import api
from dovetail.condition import parse
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Observer, Progress
from dovetail.core.tables import check_output, dataset_of, format_of, is_part_of_result, plain_schema
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

GROUP_ROWS = 1 << 20  # rows of one group in a parquet file
REMOTE = re.compile(r"(grpc(?:\+\w+)?://[^/]+)/(.+)")


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

    def check(self) -> None:
        """Find everything that can be wrong with a request before Spark starts, by planning it without data."""
        schemas = self.schemas()
        condition = parse(self.on, schemas[0], schemas[1], in_process=self.in_process)
        facts = InputFacts(
            "progressive" if self.as_it_comes else "at_rest",
            on_spark=not self.in_process,
            diagonal=Unseen() if self.is_at_rest() else None,
        )
        memory_bytes = None if self.memory is None else parse_bytes(self.memory)
        plan = plan_join(condition, self.how, facts, algorithm=self.algorithm, memory_bytes=memory_bytes)
        output_schema(schemas[0], schemas[1], self.suffix, plan.how)

    def schemas(self) -> list[pa.Schema]:
        return [
            source.schema if (source := _remote(place)) is not None else dataset_of(Path(place)).schema
            for place in (self.left, self.right)
        ]

    def is_at_rest(self) -> bool:
        """Whether rows can be read by position: of tables in process, of Parquet files on Spark."""
        if any_remote(self.left, self.right):
            return False
        return self.in_process or all(format_of(Path(place)) == "parquet" for place in (self.left, self.right))

    def inputs(self) -> list[Any]:
        """What is joined in process: remote sources and Parquet files are read as it goes, other files before."""
        return [_remote(place) or _file(Path(place)) for place in (self.left, self.right)]

    def frames(self, spark: Any) -> list[Any]:
        """What is joined on Spark."""
        return [
            spark.read.format(format_of(path)).options(**_options(path)).load(str(path))
            for path in (Path(self.left), Path(self.right))
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


def run_join(
    request: Request, out: Path, options: MonitorOptions, *, overwrite: bool = False, progress: bool | None = None
) -> int:
    """Join, write, and return how many rows there are."""
    request.check()
    check_output(out, overwrite=overwrite)
    if request.as_it_comes:
        return _join_watched(request, out, options)
    with watched(progress) as observer:
        return (_join_in_process if request.in_process else _join_on_spark)(request, out, observer)


def explain_join(request: Request) -> JoinPlan:
    """The plan of the join, with what the data tells."""
    request.check()
    if request.in_process:
        return request.explain(*request.inputs())
    from dovetail.spark.session.session import session_for_now

    with session_for_now() as spark:
        return request.explain(*request.frames(spark))


def _join_in_process(request: Request, out: Path, observer: Observer | None) -> int:
    observe = observer or _nobody
    observe(Progress("reading"))
    left, right = request.inputs()
    result = request.join(left, right, observer)
    rows: int = result.num_rows
    with _writer(out, result.schema) as file:
        for start in range(0, rows, GROUP_ROWS):
            observe(Progress("writing", start, rows))
            file.write_table(result.slice(start, GROUP_ROWS), GROUP_ROWS)
    observe(Progress("writing", rows, rows))
    return rows


def _join_watched(request: Request, out: Path, options: MonitorOptions) -> int:
    rows = 0
    schemas = [plain_schema(schema) for schema in request.schemas()]
    schema = output_schema(schemas[0], schemas[1], request.suffix, JoinType.read(request.how))
    waiting: list[pa.RecordBatch] = []
    with options.recording() as recording, _writer(out, schema) as file:
        for step in request.steps(recording):
            waiting.append(step.batch)
            rows += step.batch.num_rows
            if sum(batch.num_rows for batch in waiting) >= GROUP_ROWS:
                file.write_table(pa.Table.from_batches(waiting, schema), GROUP_ROWS)
                waiting.clear()
        file.write_table(pa.Table.from_batches(waiting, schema), GROUP_ROWS)
    return rows


@contextmanager
def _writer(out: Path, schema: pa.Schema) -> Iterator[Any]:
    """A Parquet file that takes the place of an earlier result in the directory when it is whole."""
    unfinished = out / ".part-0.tmp"
    try:
        with pq.ParquetWriter(unfinished, schema) as file:
            yield file
        _remove_result(out, except_for=unfinished)
        unfinished.rename(out / "part-0.parquet")
    finally:
        unfinished.unlink(missing_ok=True)


def _join_on_spark(request: Request, out: Path, observer: Observer | None) -> int:
    from dovetail.spark.session.session import session_for_now

    observe = observer or _nobody
    observe(Progress("starting Spark"))
    with session_for_now() as spark:
        left, right = request.frames(spark)
        observe(Progress("joining"))
        request.join(left, right).write.mode("overwrite").parquet(str(out))
        return spark.read.parquet(str(out)).count()


def any_remote(*places: str) -> bool:
    """Whether any of the places is a dataset of a Flight server."""
    return any(REMOTE.match(place) for place in places)


def _remote(place: str) -> Source | None:
    """A dataset of a Flight server, where the place is one."""
    found = REMOTE.fullmatch(place)
    return None if found is None else flight(found[1], found[2])


def _file(path: Path) -> Any:
    return path if format_of(path) == "parquet" else dataset_of(path).to_table()


def _nobody(_: Progress) -> None:
    """Looks the other way."""


def _options(path: Path) -> dict[str, str]:
    return {"header": "true", "inferSchema": "true"} if format_of(path) == "csv" else {}


def _remove_result(directory: Path, *, except_for: Path) -> None:
    for path in directory.iterdir():
        if path != except_for and is_part_of_result(path):
            path.unlink()
