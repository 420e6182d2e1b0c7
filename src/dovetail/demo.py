"""The demo: two slow sources, a join on Spark that answers while they are still sending, and a check of its answer.

writer thread --> files of orders   --+
                                      +--> dovetail.join on Spark --> parquet sink --> counted, checked
writer thread --> files of payments --+
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dovetail.api import join

ON = "l.order_id = r.order_id"
BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Script:
    """How a source behaves: how many files it sends, how far apart, and after which of them it falls silent."""

    name: str
    files: int
    rows_per_file: int
    gap_s: float
    silences: dict[int, float]  # after this file, for so many seconds


ORDERS = Script("orders", 40, 5_000, 0.4, {12: 6.0, 30: 4.0})
PAYMENTS = Script("payments", 40, 5_000, 0.4, {14: 5.0, 26: 3.0})


class Source(threading.Thread):
    """Writes its files to a directory as its script says."""

    def __init__(self, script: Script, directory: Path, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.script = script
        self.directory = directory
        self.sent = 0
        self.silent = False
        self._stop_now = stop
        self._rng = np.random.default_rng(len(script.name))
        self._portions = np.array_split(self._rng.permutation(script.files * script.rows_per_file), script.files)
        directory.mkdir()

    def send(self, number: int) -> None:
        """Write one file."""
        self._write(number, self._rows(self._portions[number]))
        self.sent += len(self._portions[number])

    def run(self) -> None:
        for number in range(1, self.script.files):
            self.send(number)
            pause = self.script.silences.get(number, 0.0)
            self.silent = pause > 0
            if self._stop_now.wait(self.script.gap_s + pause):
                return
        self.silent = False

    def _rows(self, ids: NDArray[np.int64]) -> pa.Table:
        rng = self._rng
        amounts = rng.gamma(2.0, 40.0, len(ids)).round(2)
        if self.script.name == "orders":
            return pa.table(
                {"order_id": ids, "amount": amounts, "city": rng.choice(["Basel", "Kyoto", "Lima"], len(ids))}
            )
        # One order in eight is paid in two instalments, and as many are not paid at all.
        paid = np.where(rng.random(len(ids)) < 0.125, rng.permutation(ids), ids)
        return pa.table({"order_id": paid, "paid": amounts})

    @property
    def state(self) -> str:
        """How much it has sent, and what it is doing."""
        doing = "ended" if not self.is_alive() else "silent" if self.silent else ""
        return f"{self.sent:,} {doing}".strip()

    def _write(self, number: int, rows: pa.Table) -> None:
        unfinished = self.directory / f".{number}.tmp"
        pq.write_table(rows, unfinished)
        unfinished.rename(self.directory / f"{number:04d}.parquet")  # Spark must never see half a file


@dataclass(slots=True)
class Scene:
    """What the screen shows."""

    sources: tuple[Source, Source]
    started: float = field(default_factory=time.perf_counter)
    results: int = 0
    micro_batches: int = 0
    joined_rows: int = 0
    rates: list[float] = field(default_factory=list)
    first_result_s: float | None = None
    phase: str = "starting"

    def update(self, results: int, joined_rows: int, micro_batches: int, seconds: float) -> None:
        self.rates.append(max(0.0, (results - self.results) / seconds))
        if results and self.first_result_s is None:
            self.first_result_s = self.elapsed
        self.results, self.joined_rows, self.micro_batches = results, joined_rows, micro_batches
        silent = [source.silent or not source.is_alive() for source in self.sources]
        self.phase = "stalled" if all(silent) and self.joined_rows >= self.sent else "arriving"

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.started

    @property
    def sent(self) -> int:
        return sum(source.sent for source in self.sources)

    def line(self) -> str:
        sources = " ".join(f"{source.script.name} {source.state:<14}" for source in self.sources)
        return f"{self.elapsed:5.1f} s  {self.phase:<8}  {sources} {self.results:>7,} results"

    def __rich__(self) -> Group:
        table = Table.grid(padding=(0, 3))
        colour = {"arriving": "green", "stalled": "yellow"}.get(self.phase, "cyan")
        table.add_row("time", f"{self.elapsed:.1f} s")
        table.add_row("phase", f"[bold {colour}]{self.phase}[/]")
        for source in self.sources:
            table.add_row(source.script.name, f"{source.state} rows")
        table.add_row("joined", f"{self.joined_rows:,} rows in {self.micro_batches} micro-batches")
        table.add_row("results", f"[bold]{self.results:,}[/]")
        table.add_row("results/s", _sparkline(self.rates[-48:]))
        return Group(Text(f"orders JOIN payments ON {ON}", style="bold"), table)


def run(console: Console) -> bool:
    """Run the demo; True if its answer is right."""
    from dovetail.spark.session import local_session

    place = Path(tempfile.mkdtemp(prefix="dovetail-demo-"))
    console.print("starting Spark …", highlight=False)
    spark = local_session("dovetail demo", conf={"spark.sql.shuffle.partitions": "2"})
    try:
        results = _stream(spark, place, console)
        return _check(spark, place, results, console)
    finally:
        spark.stop()
        shutil.rmtree(place, ignore_errors=True)


def _stream(spark: Any, place: Path, console: Console) -> int:
    stop = threading.Event()
    sources = (Source(ORDERS, place / "orders", stop), Source(PAYMENTS, place / "payments", stop))
    streams = [
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 8).parquet(str(source.directory))
        for source, schema in zip(
            sources, ("order_id bigint, amount double, city string", "order_id bigint, paid double"), strict=True
        )
    ]
    for source in sources:
        source.send(0)
    joined = join(streams[0], streams[1], ON, state_dir=str(place / "state"))
    query = (
        joined.writeStream.format("parquet")
        .option("path", str(place / "results"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .start()
    )
    try:
        console.print("warming up with the first files …", highlight=False)
        query.processAllAvailable()
        scene = Scene(sources)
        for source in sources:
            source.start()
        with _screen(scene, console) as show:
            _watch(query, scene, show)
    finally:
        stop.set()
        query.stop()
    total = _sink_rows(spark, place)
    console.print(
        f"first results after {scene.first_result_s or 0:.1f} s, all {total:,} after {scene.elapsed:.1f} s, "
        f"in {scene.micro_batches} micro-batches",
        highlight=False,
    )
    return total


def _watch(query: Any, scene: Scene, show: Any) -> None:
    """Follow the query until the sources have ended and everything they sent is joined."""
    seen: dict[int, tuple[int, int]] = {}
    last = time.perf_counter()
    while True:
        time.sleep(0.5)
        if query.exception() is not None:
            raise RuntimeError(f"the query failed: {query.exception()}")
        for progress in query.recentProgress:
            metrics = progress.observedMetrics.get("dovetail") if progress.observedMetrics else None
            results = (metrics["results"] or 0) if metrics is not None else 0  # null where no cell had work
            seen[progress.batchId] = (max(progress.numInputRows, seen.get(progress.batchId, (0, 0))[0]), results)
        now = time.perf_counter()
        rows, results = (sum(values) for values in zip(*seen.values(), strict=True)) if seen else (0, 0)
        scene.update(results, rows, len(seen), now - last)
        last = now
        show()
        if all(not source.is_alive() for source in scene.sources) and scene.joined_rows >= scene.sent:
            return


def _check(spark: Any, place: Path, results: int, console: Console) -> bool:
    """Compare with Spark's own join of the same files at rest: the number of rows and a fingerprint of them."""
    console.print("checking against Spark's own join of the same data at rest …", highlight=False)
    fingerprint = ["count(*) AS n", "sum(cast(xxhash64(order_id, amount, city, paid) AS decimal(38,0))) AS h"]
    ours = spark.read.parquet(str(place / "results")).selectExpr(*fingerprint).first()
    orders = spark.read.parquet(str(place / "orders"))
    payments = spark.read.parquet(str(place / "payments"))
    theirs = orders.join(payments, "order_id").selectExpr(*fingerprint).first()
    if ours == theirs and ours["n"] == results:
        console.print(f"[bold green]✓[/] {results:,} results, the same rows as Spark's own join", highlight=False)
        return True
    console.print(f"[bold red]✗[/] {ours['n']:,} results, Spark's own join gives {theirs['n']:,}", highlight=False)
    return False


def _sink_rows(spark: Any, place: Path) -> int:
    rows: int = spark.read.parquet(str(place / "results")).count()
    return rows


@contextmanager
def _screen(scene: Scene, console: Console) -> Iterator[Any]:
    """A live panel on a terminal, a plain line every two seconds elsewhere."""
    if console.is_terminal:
        with Live(scene, console=console, auto_refresh=False) as live:
            yield live.refresh
        return
    last = [-2.0]

    def plain() -> None:
        if scene.elapsed - last[0] >= 2.0:
            last[0] = scene.elapsed
            console.print(scene.line(), highlight=False)

    yield plain


def _sparkline(rates: list[float]) -> str:
    top = max(rates, default=0.0) or 1.0
    bars = "".join(BARS[round(rate / top * (len(BARS) - 1))] for rate in rates)
    return f"{bars} {rates[-1] if rates else 0:,.0f}"
