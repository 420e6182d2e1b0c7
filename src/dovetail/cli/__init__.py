"""Joins that return results while the data is still arriving.

Exit codes: 0 success, 1 failure while running, 2 invalid request (nothing was done), 130 stopped by Ctrl-C (rows found
so far are written).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from dovetail.cli.stopping import stopped_in_order
from dovetail.errors import DovetailError, InputError
from dovetail.visible import visible

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown")
console = Console()
errors = Console(stderr=True)
INTERRUPTED = 130  # the exit code after Ctrl-C, as in shells
TRACEBACK = "DOVETAIL_TRACEBACK"  # an environment variable: errors from outside Dovetail are shown with a traceback

INPUTS, RESULT, RUN, MONITORING = "What is joined", "The result", "How it is joined", "While it runs"


def _complete_algorithm() -> list[str]:
    from dovetail.operators.registry import REGISTRY

    return ["auto", "diag", *REGISTRY]


def _show_version(wanted: bool) -> None:
    if wanted:
        from dovetail import __version__

        console.print(f"dovetail {__version__}", highlight=False)
        raise typer.Exit


@app.callback(help=__doc__)
def take_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LEFT RIGHT CONDITION",
        help='Both inputs and the condition, in quotes: a.csv b.csv "l.x < r.y". Those that options give are left out.',
        show_default=False,
    ),
]
Left = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="The left input, `l` in the condition: a Parquet, CSV, JSON, Arrow or ORC file, a directory of them, or "
        "grpc://host:port/name, a dataset of an Arrow Flight server, which is joined as it arrives.",
        rich_help_panel=INPUTS,
    ),
]
Right = Annotated[
    str | None, typer.Option(metavar="FILE", help="The right input, `r` in the condition.", rich_help_panel=INPUTS)
]
On = Annotated[
    str | None,
    typer.Option(metavar="SQL", help='The condition: "l.id = r.id AND l.t < r.t".', rich_help_panel=INPUTS),
]
How = Annotated[
    str,
    typer.Option(
        metavar="TYPE",
        help="inner, left, right, full, left_semi or left_anti.",
        autocompletion=lambda: ["inner", "left", "right", "full", "left_semi", "left_anti"],
        rich_help_panel=INPUTS,
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory of each cell, such as 64MB. By default 256MB if files are joined as they are read, else no limit.",
        rich_help_panel=RUN,
    ),
]
Algorithm = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The algorithm; auto lets the planner choose.",
        autocompletion=_complete_algorithm,
        rich_help_panel=RUN,
    ),
]
InProcess = Annotated[
    bool | None,
    typer.Option(
        "--in-process/--spark",
        " /--no-in-process",
        help="Join in this process, or on Spark. By default in this process, if both inputs as tables take at most a "
        "quarter of the free memory, else on Spark.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]


@app.command()
def join(
    words: Words = None,
    left: Left = None,
    right: Right = None,
    on: On = None,
    how: How = "inner",
    select: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help='Columns of the result: "l.id, r.amount AS paid". All by default.',
            rich_help_panel=RESULT,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="ROWS",
            help="At most this many rows, in no particular order; the join stops when it has them.",
            rich_help_panel=RESULT,
        ),
    ] = None,
    suffix: Annotated[
        str, typer.Option(metavar="TEXT", help="Appended to right column names that clash.", rich_help_panel=RESULT)
    ] = "_right",
    out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="A file that ends with .parquet, .arrow, .csv or .jsonl, or a directory, with a slash at the end. By "
            "default a table of the first rows is printed.",
            rich_help_panel=RESULT,
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="parquet, arrow, csv or json (a line for each row); the last two are printed, if there is no --out.",
            autocompletion=lambda: ["parquet", "arrow", "csv", "json"],
            rich_help_panel=RESULT,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite/--no-overwrite",
            help="Replace an earlier result there; any other file in a directory is an error.",
            rich_help_panel=RESULT,
        ),
    ] = False,
    memory: Memory = None,
    algorithm: Algorithm = "auto",
    in_process: InProcess = None,
    progress: Annotated[
        bool | None,
        typer.Option(
            "--progress/--no-progress",
            help="A bar on the terminal, or lines of plain text elsewhere. By default on a terminal only.",
            rich_help_panel=MONITORING,
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Show what the join does, in the terminal.", rich_help_panel=MONITORING),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="The same in a browser on this machine.", rich_help_panel=MONITORING)
    ] = False,
    port: Annotated[
        int, typer.Option(help="The port for --watch; 0 selects a free one.", rich_help_panel=MONITORING)
    ] = 0,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Record the run in this file, for `dovetail watch`.", rich_help_panel=MONITORING
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a report of the run to this HTML file.", rich_help_panel=MONITORING),
    ] = None,
) -> None:
    """Join two files on any condition, and print the result or write it to files.

        dovetail join orders.parquet payments.csv "l.id = r.order_id" --select "l.id, r.amount" --out paid.parquet

    Files that fit in memory are joined in this process, larger ones on Spark. With `--live`, `--watch`, `--record` or
    `--report` files are joined in this process as they are read, by an algorithm that returns early results.
    """
    from dovetail.cli.early_checks import Asked, any_remote, check_early
    from dovetail.cli.results import Target
    from dovetail.cli.runtime import choose_runtime

    asked, target = Asked.read(words or (), left, right, on), Target.read(out, format_)
    as_it_comes = live or watch or record is not None or report is not None or any_remote(*asked.places)
    condition = check_early(asked, how, memory, in_process=True if as_it_comes else in_process)
    runtime = choose_runtime(asked, condition, in_process, as_it_comes=as_it_comes)
    from dovetail.cli.request import Interrupted, JoinCommand, MonitorOptions, run_join

    options = MonitorOptions(live, watch, port, record, report)
    command = JoinCommand.read(
        asked.places,
        asked.on,
        how,
        in_process=runtime.in_process,
        as_it_comes=as_it_comes,
        select=select,
        suffix=suffix,
        memory=memory,
        algorithm=algorithm,
        limit=limit,
    )
    if in_process is None and not runtime.in_process:
        errors.print(str(runtime), highlight=False, markup=False, soft_wrap=True)
    started = time.perf_counter()
    try:
        outcome = run_join(command, target, options, console, overwrite=overwrite, progress=progress)
    except Interrupted as stopped:
        errors.print(str(stopped), highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    said = f"{outcome.rows:,} {'row' if outcome.rows == 1 else 'rows'} in {time.perf_counter() - started:.1f} s"
    if out is not None:
        console.print(f"{said}, written to {visible(out)}", highlight=False, markup=False, soft_wrap=True)
        return
    more = "; there are more: --limit shows as many as it says, --out writes all" if outcome.is_cut else ""
    errors.print(f"{said}{more}", highlight=False, soft_wrap=True)
    if outcome.left_out:
        errors.print(outcome.left_out, highlight=False, soft_wrap=True)


@app.command("sql")
def run_sql(
    query: Annotated[str, typer.Argument(metavar="SQL", help='The query: "SELECT … FROM trips JOIN fares ON …".')],
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=FILE]…", help="The tables of the query: Parquet, CSV, JSON or ORC files."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Where the result goes, as for `dovetail join`.", rich_help_panel=RESULT),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="As for `dovetail join`.", rich_help_panel=RESULT),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite/--no-overwrite", help="Replace an earlier result there.", rich_help_panel=RESULT),
    ] = False,
) -> None:
    """Run a SQL query over files in this process: joins, filters, groups, order.

        dovetail sql "SELECT * FROM trips t JOIN fares f ON t.km < f.up_to" trips=trips.csv fares=fares.parquet

    A file can also be named in the query, in quotes: FROM 'trips.csv'.
    """
    from dovetail.cli.results import Target
    from dovetail.cli.sql_command import read_tables, run_query

    target, started = Target.read(out, format_), time.perf_counter()
    rows = run_query(query, read_tables(tables or ()), target, console, overwrite=overwrite)
    words = f"{rows:,} {'row' if rows == 1 else 'rows'} in {time.perf_counter() - started:.1f} s"
    shown = target.rows_for_people
    more = f"; the first {shown} are shown, --out writes all" if shown is not None and rows > shown else ""
    errors.print(f"{words}{more}", highlight=False, soft_wrap=True)


@app.command("watch")
def watch_recordings(
    path: Annotated[Path, typer.Argument(help="A recording (--record, record=), or a directory of them.")],
    port: Annotated[int, typer.Option(help="The port; 0 selects a free one.")] = 0,
) -> None:
    """Show recorded joins in a browser on this machine, also while they run. Ctrl-C ends it."""
    from dovetail.monitoring.server import announce, watch

    with watch(path, port) as server:
        announce(server.url)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


@app.command()
def explain(
    words: Words = None,
    left: Left = None,
    right: Right = None,
    on: On = None,
    how: How = "inner",
    memory: Memory = None,
    algorithm: Algorithm = "auto",
    in_process: InProcess = None,
    progressive: Annotated[
        bool, typer.Option("--progressive", help="A join with --live, --watch, --record or --report.")
    ] = False,
) -> None:
    """Explain what a join of these files would do, and why. Nothing is joined or written.

    It looks at the data as the join does. On Spark, which it starts, it takes a sample, and reads the keys of Parquet
    files that are clustered alike. In process it reads the columns of the condition. Invalid requests are refused
    before that.
    """
    from dovetail.cli.early_checks import Asked, any_remote, check_early
    from dovetail.cli.runtime import choose_runtime

    asked = Asked.read(words or (), left, right, on)
    as_it_comes = progressive or any_remote(*asked.places)
    condition = check_early(asked, how, memory, in_process=True if as_it_comes else in_process)
    runtime = choose_runtime(asked, condition, in_process, as_it_comes=as_it_comes)
    from dovetail.cli.request import JoinCommand, explain_join

    command = JoinCommand.read(
        asked.places,
        asked.on,
        how,
        in_process=runtime.in_process,
        as_it_comes=as_it_comes,
        memory=memory,
        algorithm=algorithm,
    )
    plan = explain_join(command)
    console.print(f"{plan.explain()}\nwhere      {runtime}", highlight=False, markup=False, soft_wrap=True)


@app.command()
def demo(
    compare: Annotated[bool, typer.Option(help="Run again with DINER and compare the two.")] = False,
) -> None:
    """Join two remote sources that stall, on a local Spark, and show the results as they grow. Takes about a
    minute."""
    from dovetail.demo.play import run

    if not run(console, compare):
        raise typer.Exit(1)


@app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench() -> None:
    """Moved to the source checkout."""
    raise InputError("the benchmarks are not part of the package: run `python -m benchmarks` in a checkout.")


@app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def papers() -> None:
    """Moved to the source checkout."""
    raise InputError(
        "the papers are not part of the installed package: run `python -m benchmarks.papers` in a checkout."
    )


@app.command("state")
def stored_state(
    directory: Annotated[str, typer.Argument(help="The state_dir= of joins of streams: a path, or a URI.")],
    query: Annotated[str | None, typer.Option(help="The id of a query; all queries by default.")] = None,
    cells: Annotated[bool, typer.Option("--cells", help="A line for each cell, not for each join.")] = False,
    clean: Annotated[
        str | None, typer.Option(metavar="QUERY", help="Remove all state of a query that will not be started again.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove it without asking, even if it was written in the last hour.")
    ] = False,
) -> None:
    """Show the state that streaming joins keep on disk, or remove what a query has left there. Works without Spark."""
    from dovetail.cli.state_command import clean_state, show_state

    if clean is not None:
        clean_state(directory, clean, yes, console)
    else:
        show_state(directory, query, cells, console)


@app.command("doctor")
def examine_set_up(
    master: Annotated[
        str | None,
        typer.Option(help="spark://host:port, yarn, k8s://…, sc://…; by default Spark on this machine."),
    ] = None,
    state_dir: Annotated[str | None, typer.Option(help="A directory that workers should share; it is tried.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark, as often as needed.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="How many seconds Spark may take.")] = 180,
    json: Annotated[bool, typer.Option("--json", help="Findings as JSON.")] = False,
) -> None:
    """Check this machine and the workers of a cluster, report problems and say how to fix them.

    The exit code is 1 if there is a problem, and 0 if there are only warnings.
    """
    from dovetail.cli.doctor import examine, parse_settings

    if not examine(master, state_dir, parse_settings(conf or ()), timeout, console, in_json=json):
        raise typer.Exit(1)


@app.command("warm-up", hidden=True)  # its former name
@app.command()
def warmup() -> None:
    """Compile the kernels of common joins now, on all cores, so that the first join does not have to.

    Run it once per machine and version. Kernels of rarer joins (rectangles, distances, aggregates) are compiled at
    first use.
    """
    from dovetail.cli.small_joins import compile_kernels

    started = time.perf_counter()
    joins = compile_kernels()
    console.print(f"kernels are ready: {joins} small joins in {time.perf_counter() - started:.1f} s", highlight=False)


def main() -> None:
    """Run the command line. An error is printed as one line: exit code 2, or 1 if the request failed while running."""
    try:
        with stopped_in_order():
            app()
    except DovetailError as error:
        _fail(str(error), 2)
    except BrokenPipeError:  # the reader closed the pipe, for example `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        _fail("stopped by Ctrl-C.", INTERRUPTED)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "pyspark":
            from dovetail.cli.doctor import INSTALL_SPARK

            _fail(f"PySpark is not installed: {INSTALL_SPARK}. --in-process joins files without it.", 2)
        if os.environ.get(TRACEBACK):
            raise
        _fail(f"{_describe(error)} ({TRACEBACK}=1 shows where)", 1)


def _fail(words: str, code: int) -> None:
    errors.print(Text.assemble(("error: ", "bold red"), visible(words)), soft_wrap=True)
    sys.exit(code)


def _describe(error: Exception) -> str:
    """An error as one line, without the stack of the JVM or of Spark's workers."""
    from dovetail.monitoring.spark_streams import in_short

    return f"{type(error).__name__}: {in_short(str(error))}" if str(error).strip() else type(error).__name__
