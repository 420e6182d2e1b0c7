"""Shows a run to the user: a live panel, lines of plain text, and tables at the end.

  ▀▀█ ▀▀█   ▀▀█ ▀█  █▀█
  █▀▀   █   ▀▀█  █  █ █     results, while rows are still to come
  ▀▀▀   ▀ ▄ ▀▀▀ ▀▀▀ ▀▀▀     Spark's own join: 0

      5.2 s   both are idle: dovetail joins what is on disk
     orders   ███████████░░░░░░░░░░░░░░    53,120 rows   silent
   payments   ███████████░░░░░░░░░░░░░░    52,004 rows   silent
       kept   7 % of the rows in memory, 93 % on disk

                       ▂▅▇     a column for each second, with all that is found by its end;
   dovetail   ▁▁▂▂▃▃▃▃▃███     its colour says what was going on
Spark's own
     orders   ━━━━━━      ━
   payments   ━━━━━       ━━
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dovetail.demo.large_text import large
from dovetail.demo.scene import CELLS, Scene
from dovetail.demo.senders import Sender, silences

LINE_S = 10.0  # between lines of plain text
LABEL = 11
BLOCKS = " ▁▂▃▄▅▆▇█"
HEIGHT = 4  # lines of a chart
COLUMNS = 60  # seconds shown
PHASES = {
    "starting": ("cyan", "Spark's workers start; the clock waits for them"),
    "arriving": ("green", "rows arrive"),
    "silent": ("yellow", "both are idle: {} joins the rows on disk"),
    "rest": ("cyan", "all rows have been sent: {} emits the remaining results"),
    "complete": ("bold cyan", "complete"),
}
SPARK = "Spark's own"


@contextmanager
def screen(scene: Scene, console: Console) -> Iterator[Callable[[], None]]:
    """A live panel on a terminal, elsewhere a line of text every ten seconds. Call the yielded function often."""
    if console.is_terminal:
        with Live(ScenePanel(scene), console=console, refresh_per_second=8):
            yield lambda: None
        return
    last = [0.0]

    def plain() -> None:
        if scene.began is not None and scene.now_s - last[0] >= LINE_S:
            last[0] = scene.now_s
            say(console, line(scene))

    yield plain


def say(console: Console, words: str) -> None:
    console.print(words, highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class ScenePanel:
    """A scene as a panel for a terminal."""

    scene: Scene

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for text in _lines(self.scene, options.max_width):
            text.truncate(options.max_width)
            text.no_wrap = True
            yield text


def _lines(scene: Scene, width: int) -> list[Text]:
    colour, words = PHASES[scene.phase]
    clock = scene.elapsed if scene.began is not None else time.monotonic() - scene.made
    lines = [_row(f"{clock:.1f} s", Text(words.format(scene.algorithm), style=colour))]
    lines += [_row(sender.name, _progress(scene, sender, width)) for sender in scene.senders]
    kept = f"{scene.memory_share:.0%} of the rows in memory, {1 - scene.memory_share:.0%} on disk"
    if not scene.in_memory + scene.on_disk:
        kept = "no rows yet"
    if scene.ended is not None:
        kept = f"at most {scene.most_in_memory:,} rows in memory at a time, in {CELLS} cells"
    lines.append(_row("kept", Text(kept)))
    lines.append(_row(SPARK, Text(scene.rival.words, style="magenta")))
    return [*_results(scene), Text(), *lines, Text(), *_charts(scene, min(COLUMNS, width - LABEL - 3))]


def _results(scene: Scene) -> list[Text]:
    """The number of results, in large type."""
    spilled = f"{scene.of_spilled:,} of them in rows on disk" if scene.of_spilled else ""
    beside = ("results, while rows are still to come", spilled, f"Spark's own join: {scene.rival.found[0]:,}")
    if scene.transmitted:
        beside = ("results", spilled, beside[-1])
    return large(f"{scene.results:,}", "bold green", beside)


def _progress(scene: Scene, sender: Sender, width: int) -> Text:
    rows, share = sender.sent, sender.sent / len(sender.rows.seconds)
    cells = max(8, min(30, width - 44))
    full = round(cells * share)
    doing = "ended" if sender.rows.ended() else "silent" if sender.silent else "sends"
    if scene.began is None:
        doing = "waits"
    style = {"ended": "cyan", "silent": "yellow", "sends": "green", "waits": "dim"}[doing]
    bar = ("█" * full, style), ("░" * (cells - full), "dim")
    return Text.assemble(*bar, f" {rows:>8,} rows   ", (doing, style))


def _charts(scene: Scene, columns: int) -> list[Text]:
    """Results over time, ours and Spark's; below, when each server sent rows."""
    per_column = max(1.0, scene.now_s / columns)
    seconds = [i * per_column for i in range(1 + int(scene.now_s / per_column))]
    if scene.is_over and seconds[-1] < scene.now_s and len(seconds) <= columns:
        seconds.append(scene.now_s)  # results in the last fraction of a second
    moments = scene.moments(seconds)
    top = max(scene.results, scene.rival.found[0], 1)
    ours = [(moment.results, PHASES[moment.phase][0]) for moment in moments[1:]]
    theirs = [(scene.rival.found[0] if 0 < scene.rival_s <= second else 0, "magenta") for second in seconds[1:]]
    lines = [*_chart("dovetail", ours, top), Text(), *_chart(SPARK, theirs, top)]
    for sender in scene.senders:
        sent = sender.rows.seconds.searchsorted([moment.script_s for moment in moments], side="right")
        drawn = "".join("━" if rows else " " for rows in np.diff(sent))
        lines.append(_row(sender.name, Text(drawn, style="green")))
    return [*lines, LEGEND.copy()]


def _row(label: str, content: Text) -> Text:
    return Text.assemble((f"{label:>{LABEL}}", "dim"), "   ", content)


def _chart(name: str, bars: list[tuple[int, str]], top: int) -> list[Text]:
    """Bars in eighths of a line, scaled to the height of the chart, with their name and the highest value."""
    lines = []
    for level in reversed(range(HEIGHT)):
        text = Text()
        for value, colour in bars:
            text.append(BLOCKS[min(8, max(0, round(value / top * HEIGHT * 8) - level * 8))], colour)
        label = {HEIGHT - 1: f"{top:,}" if bars else "", 0: name}.get(level, "")
        lines.append(_row(label, text))
    return lines


LEGEND = _row("found", Text())
for _phase, _when in (("arriving", "as rows arrive"), ("silent", "in silence"), ("rest", "after the end")):
    LEGEND.append("█ ", PHASES[_phase][0]).append(f"{_when}  ", "dim")


def line(scene: Scene) -> str:
    """A moment as a line of text."""
    sent = "  ".join(f"{sender.name} {sender.sent:>7,}" for sender in scene.senders)
    return f"{scene.now_s:5.1f} s  {sent}  results {scene.results:>7,}  {SPARK} {scene.rival.found[0]:,}"


def summary(scene: Scene) -> Table:
    """Both joins, a line each."""
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for name in ("", "before the last row arrived", "", "all results"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, found, seconds in (("dovetail", scene.early, scene.elapsed), (SPARK, 0, scene.rival_s)):
        share = f"{100 * found / max(1, scene.results):.0f} %"
        table.add_row(name, f"{found:,} results", share, f"after {seconds:.1f} s")
    return table


def headline(scene: Scene) -> Text:
    """The outcome of a run in one number."""
    early = scene.early / max(1, scene.results)
    beside = (
        "of all results before the last row arrived",
        f"{scene.early:,} of {scene.results:,}",
        f"Spark's own join: none, all of them {scene.rival_s - scene.sent_s:.1f} s after it",
    )
    return Text("\n").join(large(f"{early:.0%}", "bold green", beside))


def remark(scene: Scene) -> str:
    return f"{scene.of_spilled:,} of the early results were found in rows on disk."


def side_by_side(scenes: list[Scene]) -> Table:
    """What each algorithm had found at which time."""
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
