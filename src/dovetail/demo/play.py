"""Two servers that stall, a join on Spark that uses the stalls, and beside it Spark's own join.

Which payments came within ten seconds of an order, and cover it? There is no equality, so that Spark refuses to join
the streams: its own join is a batch job that starts when the last row has arrived.

Flight server: orders   --+--> dovetail.join(…, memory=…) on Spark --> parquet --> counted --+
                          |                                                                  +--> the same?
Flight server: payments --+--> Spark's own join, when the last row has arrived --> counted --+
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from dovetail.api import join
from dovetail.core.owned_directories import remove_owned, temporary_directory
from dovetail.demo.scene import Fingerprint, Rival, Scene
from dovetail.demo.screen import remark, say, screen, side_by_side, summary
from dovetail.demo.senders import Sender, senders
from dovetail.monitoring.spark_streams import MicroBatches, known_figures

ON = "r.paid_at BETWEEN l.ordered_at AND l.ordered_at + 10 AND r.paid >= l.amount"
MEMORY = "96KB"
CELLS = 2
METRICS = "dovetail"
POLL_S = 0.25
NEXT = 'Try it on files of yours: {} join --left a.parquet --right b.csv --on "l.x < r.y" --live'


def run(console: Console, compare: bool = False) -> bool:
    """Run the demo; True if all answers are right. With `compare`, once more with DINER, and both side by side."""
    from dovetail.spark.session.session import BRIEF, local_session

    say(console, "starting Spark …")
    place = temporary_directory()
    spark = local_session("dovetail demo", conf=BRIEF | {"spark.sql.shuffle.partitions": str(CELLS)})
    try:
        scenes, right = [], True
        for algorithm in ("auto", "diner") if compare else ("auto",):
            scene, same = _play(spark, algorithm, place / algorithm, console)
            scenes.append(scene)
            right = right and same
        if compare:
            console.print(side_by_side(scenes))
        say(console, f"\n[bold]{NEXT.format(_command())}[/]")
        return right
    finally:
        spark.stop()
        remove_owned(place)


def _play(spark: Any, algorithm: str, place: Path, console: Console) -> tuple[Scene, bool]:
    with senders() as both:
        rival = Rival(lambda: _join_by_spark(spark, both))
        scene = Scene("dovetail" if algorithm == "auto" else algorithm, both, rival)
        orders, payments = (_read(spark.readStream.option("end", "true"), sender) for sender in both)
        state = str(place / "state")
        joined = join(orders, payments, ON, algorithm=algorithm, memory=MEMORY, end="source", state_dir=state)
        writer = joined.writeStream.format("parquet").option("path", str(place / "results"))
        query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
        try:
            say(console, f"\norders JOIN payments ON {ON}")
            say(console, f"by dovetail ({algorithm}), {MEMORY} of memory in each of {CELLS} cells, and by Spark.")
            say(console, "Spark joins no streams without an equality: its join starts when the last row is there.\n")
            with screen(scene, console) as show:
                _watch(query, scene, show)
        finally:
            query.stop()
        console.print("\n", summary(scene), "\n", sep="", end="", highlight=False)
        say(console, remark(scene))
        return scene, _check(spark, place, scene, console)


def _command() -> str:
    """How this program is called here."""
    return "dovetail" if shutil.which("dovetail") else os.path.relpath(Path(sys.executable).with_name("dovetail"))


def _read(reader: Any, sender: Sender) -> Any:
    return reader.format("dovetail-flight").options(location=sender.location, dataset=sender.name).load()


def _watch(query: Any, scene: Scene, show: Any) -> None:
    """Follow the query until both joins are complete; the clock starts when Spark's workers are warm."""
    told = MicroBatches(query)
    while not scene.is_over:
        query.awaitTermination(POLL_S)  # raises what the query has failed with
        for progress in told.news():
            figures = known_figures(progress, METRICS)
            if figures or progress.numInputRows:
                scene.keeps(figures.get("resident_rows", 0), figures.get("spilled_rows", 0))
                scene.record_results(figures.get("results", 0), progress.numInputRows, figures.get("reactive", 0))
            elif scene.joined >= scene.all_rows and scene.ended is None:
                scene.ended = time.monotonic()
        if scene.began is None and scene.results:
            scene.begin()
        if scene.ended is not None:
            scene.rival.start()  # alone, so that neither slows the other down
        scene.look()
        show()


def _fingerprint(frame: Any) -> Fingerprint:
    sums = ["count(*) AS n", "sum(cast(xxhash64(order_id, amount, payment_id, paid) AS decimal(38,0))) AS h"]
    row = frame.selectExpr(*sums).first()
    return row["n"], row["h"]


def _join_by_spark(spark: Any, both: tuple[Sender, Sender]) -> Fingerprint:
    """Spark's own join of the same rows, which are in its memory already."""
    tables = [spark.createDataFrame(pa.table(sender.rows.rows)).repartition(CELLS) for sender in both]
    orders, payments = (frame.alias(alias) for frame, alias in zip(tables, "lr", strict=True))
    return _fingerprint(orders.crossJoin(payments.hint("broadcast")).where(ON))  # the faster of its two plans


def _check(spark: Any, place: Path, scene: Scene, console: Console) -> bool:
    """Compare with Spark's own join: the number of rows and a fingerprint of them."""
    ours, theirs = _fingerprint(spark.read.parquet(str(place / "results"))), scene.rival.found
    if ours == theirs and ours[0] == scene.results:
        say(console, f"[bold green]✓[/] the same {scene.results:,} rows")
        return True
    say(console, f"[bold red]✗[/] {ours[0]:,} rows, but Spark's own join gives {theirs[0]:,}")
    return False
