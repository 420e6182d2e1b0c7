"""Two servers that stall, a join on Spark that uses the stalls, and Spark's own join for comparison.

Which payments came within ten minutes of an order, and cover it? There is no equality, so Spark refuses to join the
streams. Its own join is a batch job that starts when the last row has arrived.

Flight server: orders   --+--> dovetail.join(…, memory=…) on Spark --> parquet --> counted --+
                          |                                                                  +--> the same?
Flight server: payments --+--> Spark's own join, when the last row has arrived --> counted --+
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from dovetail.api import join
from dovetail.core.owned_directories import remove_owned, temporary_directory
from dovetail.demo.scene import CELLS, Fingerprint, Rival, Scene
from dovetail.demo.screen import headline, remark, say, screen, side_by_side, summary
from dovetail.demo.senders import Script, Sender, senders, write_script
from dovetail.monitoring.spark_streams import MicroBatches, known_figures

METRICS = "dovetail"
POLL_S = 0.25
NEXT = 'Try it on files of yours: {} join --left a.parquet --right b.csv --on "l.x < r.y" --live'


def run(console: Console, compare: bool = False) -> bool:
    """Run the demo; True if all answers are correct. `compare`: run it again with DINER, and show both."""
    script, scenes, right = write_script(), [], True
    with console.status("starting Spark") if console.is_terminal else nullcontext():
        spark = _session()
    try:
        for algorithm in ("auto", "diner") if compare else ("auto",):
            scene, same = play(spark, script, algorithm, console)
            scenes.append(scene)
            right = right and same
    finally:
        spark.stop()
    if compare:
        console.print(side_by_side(scenes))
    say(console, f"\n[bold]{NEXT.format(_command())}[/]")
    return right


def record(script: Script, console: Console) -> Scene:
    """Run a script once, to draw a picture of it."""
    spark = _session()
    try:
        scene, same = play(spark, script, "auto", console)
    finally:
        spark.stop()
    if not same:
        raise AssertionError("the two joins have different rows")
    return scene


def _session() -> Any:
    from dovetail.spark.session.session import BRIEF, local_session

    return local_session("dovetail demo", conf=BRIEF | {"spark.sql.shuffle.partitions": str(CELLS)})


def play(spark: Any, script: Script, algorithm: str, console: Console) -> tuple[Scene, bool]:
    """Run a script and show it; returns whether both joins found the same rows."""
    place = temporary_directory()
    try:
        with senders(script) as both:
            rival = Rival(lambda: _join_by_spark(spark, script, both))
            scene = Scene("dovetail" if algorithm == "auto" else algorithm, both, rival)
            _follow(_start(spark, script, algorithm, both, place), scene, script, console)
            console.print("\n", headline(scene), "\n\n", summary(scene), "\n", sep="", end="", highlight=False)
            say(console, remark(scene))
            return scene, _check(spark, place, scene, console)
    finally:
        remove_owned(place)


def _start(spark: Any, script: Script, algorithm: str, both: tuple[Sender, Sender], place: Path) -> Any:
    left, right = (_read(spark.readStream.option("end", "true"), sender) for sender in both)
    state = str(place / "state")
    joined = join(left, right, script.on, algorithm=algorithm, memory=script.memory, end="source", state_dir=state)
    writer = joined.writeStream.format("parquet").option("path", str(place / "results"))
    return writer.option("checkpointLocation", str(place / "checkpoint")).start()


def _follow(query: Any, scene: Scene, script: Script, console: Console) -> None:
    try:
        say(console, f"\n{' JOIN '.join(script.tables)}\nON {script.on}")
        say(console, f"by {scene.algorithm}, with {script.memory} of memory in each of {CELLS} cells, and by Spark.")
        say(console, "Spark cannot join streams without an equality: it starts after the last row.\n")
        with screen(scene, console) as show:
            _watch(query, scene, show)
    finally:
        query.stop()


def _command() -> str:
    """The command that started this program."""
    return "dovetail" if shutil.which("dovetail") else os.path.relpath(Path(sys.executable).with_name("dovetail"))


def _read(reader: Any, sender: Sender) -> Any:
    return reader.format("dovetail-flight").options(location=sender.location, dataset=sender.name).load()


def _watch(query: Any, scene: Scene, show: Any) -> None:
    """Follow the query until both joins are complete; the clock starts once Spark's workers are warm."""
    told = MicroBatches(query)
    while not scene.is_over:
        query.awaitTermination(POLL_S)  # raises the query's error, if it failed
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
            scene.rival.start()  # after ours is complete, so that neither slows the other down
        scene.look()
        show()


def _fingerprint(frame: Any) -> Fingerprint:
    sums = ["count(*) AS n", "sum(cast(xxhash64(*) AS decimal(38,0))) AS h"]
    row = frame.selectExpr(*sums).first()
    return row["n"], row["h"]


def _join_by_spark(spark: Any, script: Script, both: tuple[Sender, Sender]) -> Fingerprint:
    """Spark's own join of the same rows, which are already in its memory."""
    tables = [spark.createDataFrame(pa.table(sender.rows.rows)).repartition(CELLS) for sender in both]
    orders, payments = (frame.alias(alias) for frame, alias in zip(tables, "lr", strict=True))
    return _fingerprint(orders.crossJoin(payments.hint("broadcast")).where(script.on))  # the faster of its two plans


def _check(spark: Any, place: Path, scene: Scene, console: Console) -> bool:
    """Compare with Spark's own join: the number of rows and a fingerprint."""
    ours, theirs = _fingerprint(spark.read.parquet(str(place / "results"))), scene.rival.found
    if ours == theirs and ours[0] == scene.results:
        say(console, f"[bold green]✓[/] the same {scene.results:,} rows")
        return True
    say(console, f"[bold red]✗[/] {ours[0]:,} rows, but Spark's own join gives {theirs[0]:,}")
    return False
