"""Joins that answer while the data is still arriving.

Exit codes: 0 it worked, 1 it failed on the way (bench: a floor is missed), 2 the request itself is wrong (nothing was
done).
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.text import Text

from dovetail import api
from dovetail.condition import parse
from dovetail.core.join_types import JoinType
from dovetail.core.metrics import Observer, Progress
from dovetail.core.tables import check_output, dataset_of, format_of, plain_schema
from dovetail.errors import DovetailError, InputError
from dovetail.execution.in_process import Step
from dovetail.execution.output import output_schema
from dovetail.monitoring.options import MonitorOptions, announce
from dovetail.monitoring.progress_bar import watched
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.server import watch as watch_run
from dovetail.planning.plan import JoinPlan
from dovetail.planning.planner import InputFacts, Unseen, plan_join
from dovetail.sources import Source, flight
from dovetail.storage.budget import parse_bytes

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
console = Console()
errors = Console(stderr=True)

Left = Annotated[
    str,
    typer.Option(
        help="The left input: a parquet, CSV, JSON or ORC file, a directory of them, or a dataset of an Arrow Flight "
        "server, grpc://host:port/name, which is joined as it comes, in this process."
    ),
]
Right = Annotated[str, typer.Option(help="The right input.")]
On = Annotated[str, typer.Option(help='The condition, with the aliases l and r: "l.id = r.id AND l.t < r.t".')]
How = Annotated[str, typer.Option(help="inner, left, right, full, left_semi or left_anti.")]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Memory of each cell, such as 64MB. By default 256MB if files are joined as they are read, else no limit."
    ),
]
Algorithm = Annotated[str, typer.Option(help="The algorithm; auto lets the planner choose.")]


WARM_UP = (
    "l.k = r.k",
    "l.s = r.s AND l.k = r.k",
    "l.k < r.k",
    "l.k < r.k AND l.x > r.x",
    "abs(l.k - r.k) <= 1",
    "abs(l.x - r.x) <= 1",
    "l.k != r.k",
)
"""A condition for each kernel."""

GROUP_ROWS = 1 << 20  # rows of one group in a parquet file
REMOTE = re.compile(r"(grpc(?:\+\w+)?://[^/]+)/(.+)")

InProcess = Annotated[bool, typer.Option(help="Join in this process, without Spark.")]


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
        if _any_remote(self.left, self.right):
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
            record=recording,
        )


@app.command()
def join(
    left: Left,
    right: Right,
    on: On,
    out: Annotated[Path, typer.Option(help="The directory for the results, as parquet.")],
    how: How = "inner",
    suffix: Annotated[str, typer.Option(help="Appended to right column names that clash.")] = "_right",
    memory: Memory = None,
    algorithm: Algorithm = "auto",
    overwrite: Annotated[bool, typer.Option(help="Replace what is in the output directory.")] = False,
    in_process: InProcess = False,
    progress: Annotated[
        bool | None,
        typer.Option(help="A bar on the terminal, or lines of plain text elsewhere. By default: on a terminal only."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Show what the join does while it runs, in the terminal.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="The same in a browser on this machine.")] = False,
    port: Annotated[int, typer.Option(help="For --watch; 0 is any that is free.")] = 0,
    record: Annotated[Path | None, typer.Option(help="Where to keep what it did, for `dovetail watch`.")] = None,
    report: Annotated[Path | None, typer.Option(help="Where to write what it did, as an HTML file.")] = None,
) -> None:
    """Join two files.

    With --live, --watch, --record or --report they are joined in this process as they are read, by an algorithm that
    answers early.
    """
    viewing = MonitorOptions(live, watch, port, record, report)
    as_it_comes = viewing.wanted or _any_remote(left, right)
    request = Request(left, right, on, how, suffix, memory, algorithm, in_process or as_it_comes, as_it_comes)
    request.check()
    check_output(out, overwrite=overwrite)
    started = time.perf_counter()
    if as_it_comes:
        rows = _join_watched(request, out, viewing)
    else:
        with watched(progress) as observer:
            rows = (_join_in_process if in_process else _join_on_spark)(request, out, observer)
    console.print(f"{rows:,} rows in {time.perf_counter() - started:.1f} s, written to {out}", highlight=False)


@app.command("watch")
def watch_recordings(
    path: Annotated[Path, typer.Argument(help="A recording (--record, record=), or a directory of them.")],
    port: Annotated[int, typer.Option(help="0 is any that is free.")] = 0,
) -> None:
    """Show recorded joins in a browser on this machine, also while they run. Ctrl-C ends it."""
    with watch_run(path, port) as server:
        announce(server.url)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


@app.command()
def explain(
    left: Left,
    right: Right,
    on: On,
    how: How = "inner",
    memory: Memory = None,
    algorithm: Algorithm = "auto",
    in_process: InProcess = False,
    progressive: Annotated[
        bool, typer.Option("--progressive", help="A join with --live, --watch, --record or --report.")
    ] = False,
) -> None:
    """Say what a join of these files would do, and why; nothing is joined or written.

    It looks at the data as the join does: on Spark, which it starts, by a sample and, of Parquet files that are
    clustered alike, by their keys; in process by the columns of the condition. A wrong request is refused before that.
    """
    as_it_comes = progressive or _any_remote(left, right)
    request = Request(left, right, on, how, "_right", memory, algorithm, in_process or as_it_comes, as_it_comes)
    request.check()
    if request.in_process:
        plan = request.explain(*request.inputs())
    else:
        from dovetail.spark.session.session import session_for_now

        with session_for_now() as spark:
            plan = request.explain(*request.frames(spark))
    console.print(plan.explain(), highlight=False, markup=False, soft_wrap=True)


@app.command()
def demo(
    compare: Annotated[bool, typer.Option(help="Once more with XJoin, then both side by side.")] = False,
) -> None:
    """Join two remote sources that fall silent, on a local Spark, and watch the answer grow. Takes about a minute."""
    from dovetail.demo import run

    if not run(console, compare):
        raise typer.Exit(1)


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Scenarios to run; all, if none is named.")] = None,
    json: Annotated[Path | None, typer.Option(help="Where the figures go; by default benchmarks/results/.")] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Say which scenarios there are.")] = False,
) -> None:
    """Run the benchmarks against other systems: what we take, what they take, and whether we keep what we promise."""
    suite = _benchmarks()
    if only_list:
        suite.list_scenarios(console)
    elif not suite.bench(names or [], json, console):
        raise typer.Exit(1)


@app.command("warm-up")
def warm_up() -> None:
    """Compile the kernels now, so that the first join does not have to. Once per machine and version."""
    started = time.perf_counter()
    table = pa.table({"k": [1, 2, 3], "x": [-0.5, 1.5, 2.5], "s": ["a", "b", "c"]})
    for on in WARM_UP:
        for algorithm in ("auto", "nested_loop", *(["shj", "diag"] if " = " in on else [])):
            api.join(table, table, on, algorithm=algorithm)
        api.count(table, table, on)
    console.print(f"kernels are ready, {time.perf_counter() - started:.1f} s", highlight=False)


def _benchmarks() -> Any:
    """The benchmarks of the checkout that this is installed from, or that it is run in."""
    for root in (Path(__file__).parents[2], Path.cwd()):
        if (root / "benchmarks" / "suite.py").is_file():
            sys.path.insert(0, str(root))
            return importlib.import_module("benchmarks.suite")
    raise InputError(
        "the benchmarks are not part of the installed package: run `dovetail bench` in a checkout of the repository."
    )


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


def _join_watched(request: Request, out: Path, viewing: MonitorOptions) -> int:
    rows = 0
    schemas = [plain_schema(schema) for schema in request.schemas()]
    schema = output_schema(schemas[0], schemas[1], request.suffix, JoinType.read(request.how))
    waiting: list[pa.RecordBatch] = []
    with viewing.recording() as recording, _writer(out, schema) as file:
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
    """A Parquet file that takes the place of everything in the directory when it is whole."""
    unfinished = out / ".part-0.tmp"
    try:
        with pq.ParquetWriter(unfinished, schema) as file:
            yield file
        _clear(out, except_for=unfinished)
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


def _any_remote(*places: str) -> bool:
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


def _clear(directory: Path, *, except_for: Path) -> None:
    for path in directory.iterdir():
        if path != except_for:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def main() -> None:
    """Run the command line; an error of ours becomes one line and exit code 2."""
    try:
        app()
    except DovetailError as error:
        errors.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
