"""Joins that answer while the data is still arriving.

Exit codes: 0 it worked, 1 it failed on the way (bench: a floor is missed, papers: a verdict changed), 2 the request
itself is wrong (nothing was done).
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from dovetail.errors import DovetailError, InputError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
console = Console()
errors = Console(stderr=True)

Left = Annotated[
    str,
    typer.Option(
        help="The left input: a parquet, CSV, JSON or ORC file, a directory of them, or a dataset of an Arrow Flight "
        "server, grpc://host:port/name, which is joined in this process as rows arrive."
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
InProcess = Annotated[bool, typer.Option(help="Join in this process, without Spark.")]


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
    limit: Annotated[
        int | None, typer.Option(min=0, help="Any so many rows of the result; the join stops when it has them.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option(help="Replace an earlier result in the output directory; any other file there is an error.")
    ] = False,
    in_process: InProcess = False,
    progress: Annotated[
        bool | None,
        typer.Option(help="A bar on the terminal, or lines of plain text elsewhere. By default: on a terminal only."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Show what the join does while it runs, in the terminal.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="The same in a browser on this machine.")] = False,
    port: Annotated[int, typer.Option(help="The port for --watch; 0 selects a free one.")] = 0,
    record: Annotated[Path | None, typer.Option(help="Record the run in this file, for `dovetail watch`.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a report of the run to this HTML file.")] = None,
) -> None:
    """Join two files.

    With --live, --watch, --record or --report they are joined in this process as they are read, by an algorithm that
    answers early.
    """
    from dovetail.cli.request import MonitorOptions, Request, any_remote, run_join

    options = MonitorOptions(live, watch, port, record, report)
    as_it_comes = options.wanted or any_remote(left, right)
    request = Request(left, right, on, how, suffix, memory, algorithm, in_process or as_it_comes, as_it_comes, limit)
    started = time.perf_counter()
    rows = run_join(request, out, options, overwrite=overwrite, progress=progress)
    console.print(f"{rows:,} rows in {time.perf_counter() - started:.1f} s, written to {out}", highlight=False)


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
    from dovetail.cli.request import Request, any_remote, explain_join

    as_it_comes = progressive or any_remote(left, right)
    request = Request(left, right, on, how, "_right", memory, algorithm, in_process or as_it_comes, as_it_comes)
    plan = explain_join(request)
    console.print(plan.explain(), highlight=False, markup=False, soft_wrap=True)


@app.command()
def demo(
    compare: Annotated[bool, typer.Option(help="Run again with XJoin and compare the two.")] = False,
) -> None:
    """Join two remote sources that stall, on a local Spark, and show the results as they grow. Takes about a
    minute."""
    from dovetail.demo import run

    if not run(console, compare):
        raise typer.Exit(1)


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Scenarios to run; all by default.")] = None,
    json: Annotated[
        Path | None, typer.Option(help="Directory for the results; by default benchmarks/results/.")
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="List the scenarios.")] = False,
) -> None:
    """Run the benchmarks against other systems: what we take, what they take, and whether we keep what we promise."""
    suite = _benchmarks("suite", "bench")
    if only_list:
        suite.list_scenarios(console)
    elif not suite.bench(names or [], json, console):
        raise typer.Exit(1)


@app.command("papers")
def try_papers(
    names: Annotated[
        list[str] | None, typer.Argument(help="diner, miner, rpj, diag, pmj, spo; all by default.")
    ] = None,
    scale: Annotated[str, typer.Option(help="ci (minutes), small, or paper: the printed sizes, hours.")] = "ci",
    report: Annotated[Path | None, typer.Option(help="An HTML file for all findings, with plots.")] = None,
    json: Annotated[Path | None, typer.Option(help="A file for all findings, as JSON.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; by default one for each core.")] = None,
) -> None:
    """Try the claims of the papers behind the algorithms: what is printed, what comes out here, and a verdict.

    Exit code 1 if a verdict is not the one in benchmarks/papers/expected.toml.
    """
    if not _benchmarks("papers.suite", "papers").papers(names or [], scale, console, report, json, workers):
        raise typer.Exit(1)


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
    """Show what joins of streams keep on disk, or remove what a query has left there. Works without Spark."""
    from dovetail.cli.stored_state import clean_state, show_state

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
    """Check this machine and the workers of a cluster, and say what is wrong and what to do.

    Exit code 1 if there is a problem; warnings are none.
    """
    from dovetail.cli.doctor import examine, parse_settings

    if not examine(master, state_dir, parse_settings(conf or ()), timeout, console, in_json=json):
        raise typer.Exit(1)


@app.command("warm-up", hidden=True)  # as it was called before
@app.command()
def warmup() -> None:
    """Compile the kernels now, on all cores, so that the first join does not have to. Once per machine and version."""
    from dovetail.cli.small_joins import compile_kernels

    started = time.perf_counter()
    joins = compile_kernels()
    console.print(f"kernels are ready: {joins} small joins in {time.perf_counter() - started:.1f} s", highlight=False)


def _benchmarks(module: str, command: str) -> Any:
    """A module of the benchmarks of the checkout that this is installed from, or that it is run in."""
    for root in (Path(__file__).parents[3], Path.cwd()):
        if (root / "benchmarks" / "suite.py").is_file():
            sys.path.insert(0, str(root))
            return importlib.import_module(f"benchmarks.{module}")
    raise InputError(
        "the benchmarks are not part of the installed package: "
        f"run `dovetail {command}` in a checkout of the repository."
    )


def main() -> None:
    """Run the command line; an error of ours becomes one line and exit code 2."""
    try:
        app()
    except DovetailError as error:
        errors.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
        sys.exit(2)
