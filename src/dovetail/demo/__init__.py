"""The demo: two servers that stall, a join on Spark that uses the stalls, and a check of its result.

Flight server: orders   --+
                          +--> dovetail.join(…, algorithm="diner") on Spark --> parquet --> counted, checked
Flight server: payments --+
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from dovetail.api import join
from dovetail.demo.scene import Scene, Sender, senders, silences
from dovetail.monitoring.spark_streams import known_figures

ON = "l.order_id = r.order_id"
MEMORY = "320KB"
CELLS = 2
METRICS = "dovetail"
POLL_S = 0.25
LINE_S = 2.0  # between lines of plain text


def run(console: Console, compare: bool = False) -> bool:
    """Run the demo; True if all answers are right. With `compare`, once more with XJoin, and both side by side."""
    from dovetail.spark.session.session import BRIEF, local_session

    say(console, "starting Spark …")
    place = Path(tempfile.mkdtemp(prefix="dovetail-demo-"))
    spark = local_session("dovetail demo", conf=BRIEF | {"spark.sql.shuffle.partitions": str(CELLS)})
    try:
        scenes, right = [], True
        for algorithm in ("diner", "xjoin") if compare else ("diner",):
            scene, same = _play(spark, algorithm, place / algorithm, console)
            scenes.append(scene)
            right = right and same
        if compare:
            console.print(side_by_side(scenes))
        return right
    finally:
        spark.stop()
        shutil.rmtree(place, ignore_errors=True)


def _play(spark: Any, algorithm: str, place: Path, console: Console) -> tuple[Scene, bool]:
    with senders() as both:
        scene = Scene(algorithm, both)
        orders, payments = (_read(spark.readStream.option("end", "true"), sender) for sender in both)
        state = str(place / "state")
        joined = join(orders, payments, ON, algorithm=algorithm, memory=MEMORY, end="source", state_dir=state)
        writer = joined.writeStream.format("parquet").option("path", str(place / "results"))
        query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
        try:
            say(console, f"\norders JOIN payments ON {ON}")
            say(console, f"by {algorithm}, with {MEMORY} of memory in each of {CELLS} cells\n")
            with _screen(scene, console) as show:
                _watch(query, scene, show)
        finally:
            query.stop()
        say(console, summary(scene))
        say(console, "checking against Spark's own join of the same rows at rest …")
        return scene, _check(spark, place, both, scene.results, console)


def _read(reader: Any, sender: Sender) -> Any:
    return reader.format("dovetail-flight").options(location=sender.location, dataset=sender.name).load()


def _watch(query: Any, scene: Scene, show: Any) -> None:
    """Follow the query until all results are found; the clock starts when Spark's workers are warm."""
    last = -1
    while scene.ended is None:
        query.awaitTermination(POLL_S)  # raises what the query has failed with
        for progress in query.recentProgress:
            if progress.batchId <= last:
                continue
            last = progress.batchId
            figures = known_figures(progress, METRICS)
            if figures or progress.numInputRows:
                scene.record_results(figures.get("results", 0), progress.numInputRows)
                scene.keeps(figures.get("resident_rows", 0), figures.get("spilled_rows", 0))
            elif scene.joined >= scene.all_rows:
                scene.ended = time.monotonic()
        if scene.began is None and scene.results:
            scene.begin()
        scene.look()
        show()


def _check(spark: Any, place: Path, both: tuple[Sender, Sender], results: int, console: Console) -> bool:
    """Compare with Spark's own join: the number of rows and a fingerprint of them."""
    fingerprint = ["count(*) AS n", "sum(cast(xxhash64(order_id, amount, city, paid) AS decimal(38,0))) AS h"]
    ours = spark.read.parquet(str(place / "results")).selectExpr(*fingerprint).first()
    orders, payments = (_read(spark.read, sender) for sender in both)
    theirs = orders.join(payments, "order_id").selectExpr(*fingerprint).first()
    if ours == theirs and ours["n"] == results:
        say(console, f"[bold green]✓[/] {results:,} results, the same rows as Spark's own join")
        return True
    say(console, f"[bold red]✗[/] {ours['n']:,} results, Spark's own join gives {theirs['n']:,}")
    return False


def summary(scene: Scene) -> str:
    return (
        f"{scene.results:,} results in {scene.elapsed:.1f} s and {scene.micro_batches} micro-batches, "
        f"{scene.in_silence:,} of them while both were idle"
    )


def side_by_side(scenes: list[Scene]) -> Table:
    """What each algorithm had found when."""
    one, other = (sender.bursts for sender in scenes[0].senders)
    end = max(sender.rows.seconds[-1] for sender in scenes[0].senders)
    moments = [(f"at the end of stall {i}", stop) for i, (_, stop) in enumerate(silences(one, other), 1)]
    moments.append(("at the end of transmission", float(end)))
    table = Table(box=None, padding=(0, 2))
    table.add_column("results")
    for scene in scenes:
        table.add_column(scene.algorithm, justify="right")
    for words, second in moments:
        table.add_row(words, *(f"{scene.results_at(second):,}" for scene in scenes))
    table.add_row("found while both were idle", *(f"{scene.in_silence:,}" for scene in scenes))
    table.add_row("in all", *(f"{scene.results:,}" for scene in scenes))
    table.add_row("complete after", *(f"{scene.elapsed:.1f} s" for scene in scenes))
    return table


@contextmanager
def _screen(scene: Scene, console: Console) -> Iterator[Any]:
    """A live panel on a terminal, elsewhere a plain line every two seconds and whenever the phase changes."""
    if console.is_terminal:
        with Live(scene, console=console, refresh_per_second=8):
            yield lambda: None
        return
    last: list[Any] = [-LINE_S, ""]

    def plain() -> None:
        if scene.elapsed - last[0] >= LINE_S or scene.phase != last[1]:
            last[:] = scene.elapsed, scene.phase
            say(console, scene.line())

    yield plain


def say(console: Console, words: str) -> None:
    console.print(words, highlight=False, soft_wrap=True)
