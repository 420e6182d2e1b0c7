"""The demo's scene: two tables behind Flight servers, which send in bursts and stall, and what is shown of it.

   5.2 s   both are silent: diner joins what is on disk
  orders   ███████████░░░░░░░░░░░░░░    53,120 rows   silent
payments   ███████████░░░░░░░░░░░░░░    52,004 rows   silent
 results   27,310, of them 12,411 while both were silent

                    ▂▅▇     a column for each second, with all that is found by its end;
           ▁▁▂▂▃▃▃▃▃███     its colour says what was going on
  orders   ━━━━━━      ━
payments   ━━━━━       ━━
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from dovetail.sources.flight_server import TableServer
from dovetail.sources.values import Seconds
from dovetail.sources.workload import Paced

ROWS = 90_000
FIRST = 2_000  # rows that are there at once: Spark's workers start and load with them, before the clock does
GRAIN_S = 0.02
"""Rows arrive in small batches."""

Burst = tuple[float, float]
"""Seconds of sending, and of the stall after it."""

ORDERS: tuple[Burst, ...] = ((6.0, 8.0), (6.0, 8.0), (5.0, 0.0))
PAYMENTS: tuple[Burst, ...] = ((5.0, 9.5), (7.0, 7.5), (5.0, 0.0))
LABEL = 10
BLOCKS = " ▁▂▃▄▅▆▇█"
HEIGHT = 6
COLUMNS = 60  # seconds that are shown
PHASES = {
    "starting": ("cyan", "Spark's workers start with the first rows; the clock waits for them"),
    "arriving": ("green", "rows arrive"),
    "silent": ("yellow", "both are idle: {} joins the rows on disk"),
    "rest": ("cyan", "all rows have arrived: {} emits the remaining results"),
    "complete": ("bold green", "complete"),
}


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
    """All that is known of a run, for the screen and for the comparison at the end."""

    algorithm: str
    senders: tuple[Sender, Sender]
    began: float | None = None
    ended: float | None = None
    joined: int = 0  # rows that Spark has taken
    results: int = 0
    in_silence: int = 0  # results found while both servers were idle
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
            self.history.append(SceneMoment(self.elapsed, self.senders[0].rows.elapsed(), self.results, self.phase))

    def record_results(self, results: int, arrived: int) -> None:
        """A micro-batch is done."""
        self.micro_batches += 1
        self.joined += arrived
        self.results += results
        if not arrived and not self.transmitted:
            self.in_silence += results

    def keeps(self, in_memory: int, on_disk: int) -> None:
        """What the cells hold; fewer than before means that not all of them have spoken."""
        if in_memory + on_disk >= self.in_memory + self.on_disk:
            self.in_memory, self.on_disk = in_memory, on_disk

    def results_at(self, script_s: float) -> int:
        return max((moment.results for moment in self.history if moment.script_s <= script_s), default=0)

    # Plain text.

    def line(self) -> str:
        sent = "  ".join(f"{sender.name} {sender.sent:>7,}" for sender in self.senders)
        return f"{self.elapsed:5.1f} s  {self.phase:<8}  {sent}  results {self.results:>7,}"

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
        silent = f", {self.in_silence:,} of them while both were idle" if self.in_silence else ""
        lines.append(_row("results", Text.assemble((f"{self.results:,}", "bold"), silent)))
        return [*lines, Text(), *self._chart(min(COLUMNS, width - LABEL - 3))]

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

    def _chart(self, columns: int) -> list[Text]:
        """Results over time, and below who sent."""
        per_column = max(1.0, self.elapsed / columns)
        moments = self._moments([i * per_column for i in range(1 + int(self.elapsed / per_column))])
        top = max(self.results, 1)
        lines = []
        for level in reversed(range(HEIGHT)):
            text = Text()
            for moment in moments[1:]:
                eighths = round(moment.results / top * HEIGHT * 8) - level * 8
                text.append(BLOCKS[min(8, max(0, eighths))], PHASES[moment.phase][0])
            lines.append(_row(f"{top:,}" if level == HEIGHT - 1 else "", text))
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
