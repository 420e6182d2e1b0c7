"""The demo: two servers that stall, a join on Spark that uses the stalls, and beside it Spark's own join.

Flight server: orders   --+--> dovetail.join(…, memory=…) on Spark --> parquet --> counted --+
                          |                                                                           +--> the same?
Flight server: payments --+--> Spark's own join, when the last row has arrived ------------> counted --+
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dovetail.api import join
from dovetail.monitoring.spark_streams import known_figures
from dovetail.sources.flight_server import TableServer
from dovetail.sources.values import Seconds
from dovetail.sources.workload import Paced

Burst = tuple[float, float]
"""Seconds of sending, and of the stall after it."""

ON = "l.order_id = r.order_id"
MEMORY = "320KB"
CELLS = 2
METRICS = "dovetail"
POLL_S = 0.25
LINE_S = 10.0  # between lines of plain text
ROWS = 60_000
FIRST = 2_000  # rows that are there at once: Spark's workers start and load with them, before the clock does
GRAIN_S = 0.02
"""Rows arrive in small batches."""

ORDERS: tuple[Burst, ...] = ((4.0, 6.0), (4.0, 5.0), (3.0, 0.0))
PAYMENTS: tuple[Burst, ...] = ((3.0, 7.5), (5.0, 4.0), (2.5, 0.0))
LABEL = 11
BLOCKS = " ▁▂▃▄▅▆▇█"
HEIGHT = 4  # lines of a chart
COLUMNS = 60  # seconds that are shown
PHASES = {
    "starting": ("cyan", "Spark's workers start with the first rows; the clock waits for them"),
    "arriving": ("green", "rows arrive"),
    "silent": ("yellow", "both are idle: {} joins the rows on disk"),
    "rest": ("cyan", "all rows have arrived: {} emits the remaining results"),
    "complete": ("bold cyan", "complete"),
}
SPARK = "Spark's own"
NEXT = 'Try it on files of yours: dovetail join --left a.parquet --right b.csv --on "l.x < r.y" --live'


def run(console: Console, compare: bool = False) -> bool:
    """Run the demo; True if all answers are right. With `compare`, once more with XJoin, and both side by side."""
    from dovetail.spark.session.session import BRIEF, local_session

    say(console, "starting Spark …")
    place = Path(tempfile.mkdtemp(prefix="dovetail-demo-"))
    spark = local_session("dovetail demo", conf=BRIEF | {"spark.sql.shuffle.partitions": str(CELLS)})
    try:
        scenes, right = [], True
        for algorithm in ("auto", "xjoin") if compare else ("auto",):
            scene, same = _play(spark, algorithm, place / algorithm, console)
            scenes.append(scene)
            right = right and same
        if compare:
            console.print(side_by_side(scenes))
        say(console, f"\n[bold]{NEXT}[/]")
        return right
    finally:
        spark.stop()
        shutil.rmtree(place, ignore_errors=True)


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
            say(console, f"by dovetail ({algorithm}), {MEMORY} of memory in each of {CELLS} cells, and by Spark\n")
            with _screen(scene, console) as show:
                _watch(query, scene, show)
        finally:
            query.stop()
        console.print("\n", summary(scene), "\n", sep="", end="", highlight=False)
        say(console, remark(scene))
        return scene, _check(spark, place, scene, console)


def _read(reader: Any, sender: Sender) -> Any:
    return reader.format("dovetail-flight").options(location=sender.location, dataset=sender.name).load()


def _watch(query: Any, scene: Scene, show: Any) -> None:
    """Follow the query until both joins are complete; the clock starts when Spark's workers are warm."""
    last = -1
    while not scene.is_over:
        query.awaitTermination(POLL_S)  # raises what the query has failed with
        for progress in query.recentProgress:
            if progress.batchId <= last:
                continue
            last = progress.batchId
            figures = known_figures(progress, METRICS)
            if figures or progress.numInputRows:
                scene.record_results(figures.get("results", 0), progress.numInputRows, figures.get("reactive", 0))
                scene.keeps(figures.get("resident_rows", 0), figures.get("spilled_rows", 0))
            elif scene.joined >= scene.all_rows and scene.ended is None:
                scene.ended = time.monotonic()
        if scene.began is None and scene.results:
            scene.begin()
        if scene.began is not None and scene.transmitted:
            scene.rival.start()
        scene.look()
        show()


Fingerprint = tuple[int, Any]
"""The number of rows, and a sum over hashes of them."""


def _fingerprint(frame: Any) -> Fingerprint:
    sums = ["count(*) AS n", "sum(cast(xxhash64(order_id, amount, city, paid) AS decimal(38,0))) AS h"]
    row = frame.selectExpr(*sums).first()
    return row["n"], row["h"]


def _join_by_spark(spark: Any, both: tuple[Sender, Sender]) -> Fingerprint:
    """Spark's own join of the same rows at rest."""
    orders, payments = (_read(spark.read, sender) for sender in both)
    return _fingerprint(orders.join(payments, "order_id"))


def _check(spark: Any, place: Path, scene: Scene, console: Console) -> bool:
    """Compare with Spark's own join: the number of rows and a fingerprint of them."""
    ours, theirs = _fingerprint(spark.read.parquet(str(place / "results"))), scene.rival.found
    if ours == theirs and ours[0] == scene.results:
        say(console, f"[bold green]✓[/] the same {scene.results:,} rows")
        return True
    say(console, f"[bold red]✗[/] {ours[0]:,} rows, but Spark's own join gives {theirs[0]:,}")
    return False


class Rival:
    """Spark's own join: it can begin when the last row has arrived, and runs in a thread beside ours."""

    def __init__(self, join: Callable[[], Fingerprint]) -> None:
        self._join = join
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.found: Fingerprint = (0, None)
        self.ended: float | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dovetail-demo-spark", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self.found = self._join()
        except BaseException as error:
            self._failure = error
        self.ended = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether it has its result; raises what it has failed with."""
        if self._failure is not None:
            raise self._failure
        return self.ended is not None

    @property
    def words(self) -> str:
        if self._thread is None:
            return "waits for the last row"
        return f"{self.found[0]:,}" if self.ended is not None else "all rows have arrived: it joins"


def summary(scene: Scene) -> Table:
    """Both joins, a line each."""
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for name in ("", "before the last row arrived", "", "all results"):
        table.add_column(name, justify="right", no_wrap=True)
    early = min(scene.results, scene.results_at(scene.script_end_s))
    for name, found, seconds in (("dovetail", early, scene.elapsed), (SPARK, 0, scene.rival_s)):
        share = f"{100 * found / max(1, scene.results):.0f} %"
        table.add_row(name, f"{found:,} results", share, f"after {seconds:.1f} s")
    return table


def remark(scene: Scene) -> str:
    return (
        f"Before the last row arrived, {scene.of_spilled:,} results were found in rows that were on disk.\n"
        "Spark's join of streams, too, answers as rows arrive, but keeps all of them in its state."
    )


def side_by_side(scenes: list[Scene]) -> Table:
    """What each algorithm had found when."""
    one, other = (sender.bursts for sender in scenes[0].senders)
    moments = [(f"at the end of stall {i}", stop) for i, (_, stop) in enumerate(silences(one, other), 1)]
    moments.append(("at the end of transmission", scenes[0].script_end_s))
    table = Table(box=None, padding=(0, 2))
    table.add_column("results")
    for scene in scenes:
        table.add_column(scene.algorithm, justify="right")
    for words, second in moments:
        table.add_row(words, *(f"{scene.results_at(second):,}" for scene in scenes))
    table.add_row("found in rows on disk by then", *(f"{scene.of_spilled:,}" for scene in scenes))
    table.add_row("in all", *(f"{scene.results:,}" for scene in scenes))
    table.add_row("complete after", *(f"{scene.elapsed:.1f} s" for scene in scenes))
    return table


@contextmanager
def _screen(scene: Scene, console: Console) -> Iterator[Any]:
    """A live panel on a terminal, elsewhere a plain line every ten seconds."""
    if console.is_terminal:
        with Live(scene, console=console, refresh_per_second=8):
            yield lambda: None
        return
    last = [0.0]

    def plain() -> None:
        if scene.began is not None and scene.now_s - last[0] >= LINE_S:
            last[0] = scene.now_s
            say(console, scene.line())

    yield plain


def say(console: Console, words: str) -> None:
    console.print(words, highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Sender:
    """A table, and the server that sends it."""

    name: str
    rows: Paced
    bursts: tuple[Burst, ...]
    server: TableServer

    @property
    def location(self) -> str:
        return f"grpc://127.0.0.1:{self.server.port}"

    @property
    def sent(self) -> int:
        return self.rows.due()

    @property
    def silent(self) -> bool:
        return not self.rows.ended() and is_silent(self.bursts, self.rows.elapsed())


@contextmanager
def senders() -> Iterator[tuple[Sender, Sender]]:
    """Two servers that are there until the end of the block. Their clocks are started by `begin`."""
    rng = np.random.default_rng(7)
    ids = np.arange(ROWS)
    orders = pa.table(
        {
            "order_id": rng.permutation(ids),
            "amount": rng.gamma(2.0, 40.0, ROWS).round(2),
            "city": rng.choice(["Basel", "Kyoto", "Lima"], ROWS),
        }
    )
    # One order in eight is paid in two instalments, and as many are not paid at all.
    paid = np.where(rng.random(ROWS) < 0.125, rng.permutation(ids), ids)
    payments = pa.table({"order_id": rng.permutation(paid), "paid": rng.gamma(2.0, 40.0, ROWS).round(2)})
    made = []
    for name, table, bursts in (("orders", orders, ORDERS), ("payments", payments, PAYMENTS)):
        rows = Paced(table, in_bursts(ROWS, bursts), name)
        made.append(Sender(name, rows, bursts, TableServer({name: rows})))
    try:
        yield made[0], made[1]
    finally:
        for sender in made:
            sender.server.shutdown()


def in_bursts(rows: int, bursts: tuple[Burst, ...]) -> Seconds:
    """When each row comes: the first ones before the clock starts, the others evenly while it sends."""
    sending = sum(talk for talk, _ in bursts)
    talked = np.linspace(0.0, sending, rows - FIRST)
    starts = np.cumsum([0.0, *(talk for talk, _ in bursts)])[:-1]
    silences = np.cumsum([0.0, *(silence for _, silence in bursts)])[:-1]
    burst = np.searchsorted(starts, talked, side="right") - 1
    seconds = np.ceil((talked + silences[burst]) / GRAIN_S) * GRAIN_S
    return np.concatenate([np.zeros(FIRST), np.maximum(seconds, GRAIN_S)])


def is_silent(bursts: tuple[Burst, ...], second: float) -> bool:
    for talk, silence in bursts:
        if second < talk + silence:
            return second >= talk
        second -= talk + silence
    return False


def silences(one: tuple[Burst, ...], other: tuple[Burst, ...]) -> list[tuple[float, float]]:
    """The intervals in which no server sends."""
    edges = np.arange(0.0, sum(map(sum, one)) + sum(map(sum, other)), GRAIN_S)
    both = [is_silent(one, edge) and is_silent(other, edge) for edge in edges]
    turns = np.flatnonzero(np.diff([False, *both, False]))
    return [(float(edges[start]), float(edges[end - 1])) for start, end in zip(turns[::2], turns[1::2], strict=True)]


def _row(label: str, content: Text) -> Text:
    return Text.assemble((f"{label:>{LABEL}}", "dim"), "   ", content)


def _chart(name: str, bars: list[tuple[int, str]], top: int) -> list[Text]:
    """Bars of eighths, the highest as high as the chart, with their name and the highest value beside them."""
    lines = []
    for level in reversed(range(HEIGHT)):
        text = Text()
        for value, colour in bars:
            text.append(BLOCKS[min(8, max(0, round(value / top * HEIGHT * 8) - level * 8))], colour)
        label = {HEIGHT - 1: f"{top:,}", 0: name}.get(level, "")
        lines.append(_row(label, text))
    return lines


LEGEND = _row("found", Text())
for _phase, _when in (("arriving", "as rows arrive"), ("silent", "in silence"), ("rest", "after the end")):
    LEGEND.append("█ ", PHASES[_phase][0]).append(f"{_when}  ", "dim")


class SceneMoment(NamedTuple):
    elapsed: float
    script_s: float  # by the senders' clocks
    results: int
    phase: str


@dataclass(slots=True)
class Scene:
    """All that is known of a run, for the screen and for the comparison at the end.

          5.2 s   both are idle: dovetail joins what is on disk
         orders   ███████████░░░░░░░░░░░░░░    53,120 rows   silent
       payments   ███████████░░░░░░░░░░░░░░    52,004 rows   silent
        results   27,310, 12,411 of them in rows on disk
    Spark's own   waits for the last row

                           ▂▅▇     a column for each second, with all that is found by its end;
       dovetail   ▁▁▂▂▃▃▃▃▃███     its colour says what was going on
    Spark's own
         orders   ━━━━━━      ━
       payments   ━━━━━       ━━
    """

    algorithm: str
    senders: tuple[Sender, Sender]
    rival: Rival
    began: float | None = None
    ended: float | None = None
    joined: int = 0  # rows that Spark has taken
    results: int = 0
    of_spilled: int = 0  # results found in rows on disk before the last row arrived
    in_memory: int = 0
    on_disk: int = 0
    micro_batches: int = 0
    phase: str = "starting"
    history: list[SceneMoment] = field(default_factory=list)

    def begin(self) -> None:
        self.began = time.monotonic()
        for sender in self.senders:
            sender.rows.begin()

    @property
    def elapsed(self) -> float:
        return 0.0 if self.began is None else (self.ended or time.monotonic()) - self.began

    @property
    def is_over(self) -> bool:
        """Whether both joins are complete."""
        return self.rival.is_over and self.ended is not None

    @property
    def now_s(self) -> float:
        """The time that charts show: until both are complete."""
        if self.began is None:
            return 0.0
        ends = (self.ended, self.rival.ended)
        return (time.monotonic() if None in ends else max(end for end in ends if end is not None)) - self.began

    @property
    def rival_s(self) -> float:
        """When Spark's own join had its result."""
        return 0.0 if self.began is None or self.rival.ended is None else self.rival.ended - self.began

    @property
    def script_end_s(self) -> float:
        """When the last row arrives, by the senders' clocks."""
        return float(max(sender.rows.seconds[-1] for sender in self.senders))

    @property
    def transmitted(self) -> bool:
        return all(sender.rows.ended() for sender in self.senders)

    @property
    def all_rows(self) -> int:
        """What Spark takes in all: each source says at last that it has ended."""
        return sum(len(sender.rows.seconds) + 1 for sender in self.senders)

    def look(self) -> None:
        """See what is going on.

        A silence is as long as the script says from when Spark has taken what was sent before, however slow it is: till
        then the senders' clocks stand still.
        """
        waiting = sum(sender.sent for sender in self.senders) - self.joined
        silent = all(sender.silent for sender in self.senders)
        for sender in self.senders:
            sender.rows.hold(self.began is not None and silent and waiting > 0)
        if self.ended is not None:
            self.phase = "complete"
        elif self.began is None:
            self.phase = "starting"
        elif waiting > 0:
            self.phase = "arriving"
        elif self.transmitted:
            self.phase = "rest"
        else:
            self.phase = "silent" if silent else "arriving"
        if self.began is not None:
            self.history.append(SceneMoment(self.now_s, self.senders[0].rows.elapsed(), self.results, self.phase))

    def record_results(self, results: int, arrived: int, spilled: int = 0) -> None:
        """A micro-batch is done; `spilled`: results that it found in rows on disk beside those of its arrivals."""
        self.micro_batches += 1
        self.joined += arrived
        self.results += results
        if not self.transmitted:
            self.of_spilled += spilled if arrived else results

    def keeps(self, in_memory: int, on_disk: int) -> None:
        """What the cells hold; fewer than before means that not all of them have spoken."""
        if in_memory + on_disk >= self.in_memory + self.on_disk:
            self.in_memory, self.on_disk = in_memory, on_disk

    def results_at(self, script_s: float) -> int:
        return max((moment.results for moment in self.history if moment.script_s <= script_s), default=0)

    # Plain text.

    def line(self) -> str:
        sent = "  ".join(f"{sender.name} {sender.sent:>7,}" for sender in self.senders)
        return f"{self.now_s:5.1f} s  {sent}  results {self.results:>7,}  {SPARK} {self.rival.found[0]:,}"

    # The screen.

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines(options.max_width):
            line.truncate(options.max_width)
            line.no_wrap = True
            yield line

    def _lines(self, width: int) -> list[Text]:
        colour, words = PHASES[self.phase]
        lines = [_row(f"{self.elapsed:.1f} s", Text(words.format(self.algorithm), style=colour))]
        lines += [_row(sender.name, self._sender(sender, width)) for sender in self.senders]
        lines.append(_row("kept", Text(f"{self.in_memory:,} rows in memory, {self.on_disk:,} on disk")))
        silent = f", {self.of_spilled:,} of them in rows on disk" if self.of_spilled else ""
        lines.append(_row("results", Text.assemble((f"{self.results:,}", "bold"), silent)))
        lines.append(_row(SPARK, Text(self.rival.words, style="magenta")))
        return [*lines, Text(), *self._charts(min(COLUMNS, width - LABEL - 3))]

    def _sender(self, sender: Sender, width: int) -> Text:
        rows, share = sender.sent, sender.sent / len(sender.rows.seconds)
        cells = max(8, min(30, width - 44))
        full = round(cells * share)
        doing = "ended" if sender.rows.ended() else "silent" if sender.silent else "sends"
        if self.began is None:
            doing = "waits"
        style = {"ended": "cyan", "silent": "yellow", "sends": "green", "waits": "dim"}[doing]
        bar = ("█" * full, style), ("░" * (cells - full), "dim")
        return Text.assemble(*bar, f" {rows:>8,} rows   ", (doing, style))

    def _charts(self, columns: int) -> list[Text]:
        """Results over time, ours and Spark's, and below who sent."""
        per_column = max(1.0, self.now_s / columns)
        seconds = [i * per_column for i in range(1 + int(self.now_s / per_column))]
        if self.is_over and seconds[-1] < self.now_s and len(seconds) <= columns:
            seconds.append(self.now_s)  # what came in the last part of a second
        moments = self._moments(seconds)
        top = max(self.results, self.rival.found[0], 1)
        ours = [(moment.results, PHASES[moment.phase][0]) for moment in moments[1:]]
        theirs = [(self.rival.found[0] if 0 < self.rival_s <= second else 0, "magenta") for second in seconds[1:]]
        lines = [*_chart("dovetail", ours, top), Text(), *_chart(SPARK, theirs, top)]
        for sender in self.senders:
            sent = sender.rows.seconds.searchsorted([moment.script_s for moment in moments], side="right")
            drawn = "".join("━" if rows else " " for rows in np.diff(sent))
            lines.append(_row(sender.name, Text(drawn, style="green")))
        return [*lines, LEGEND.copy()]

    def _moments(self, seconds: list[float]) -> list[SceneMoment]:
        """The last moment before each of these."""
        times = [moment.elapsed for moment in self.history]
        places = np.searchsorted(times, seconds, side="right")
        return [self.history[place - 1] if place else SceneMoment(0.0, 0.0, 0, "arriving") for place in places]
