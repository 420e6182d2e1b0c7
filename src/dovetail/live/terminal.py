"""A running join in the terminal, redrawn a few times a second.

orders ⋈ payments                                                     diner, 64 MB
l.id = r.order_id

reactive   nothing arrives; rows that were set aside are joined meanwhile
results    1,204,331   48.1k/s   0:12                    about 2.31M, 2.2M to 2.4M with 95 %
           ▁▂▂▃▅▇█▆▄▃▂▁▁▁▂▃▅▆
           ━━━━━━━━━━━━━━━━━━   what it was busy with meanwhile
held       61,200 rows in memory   301,442 on disk
orders     stalled    402,118 rows
payments   arriving   388,001 rows
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from itertools import pairwise
from typing import TYPE_CHECKING, TextIO

from dovetail.live import figures
from dovetail.live.recording import DONE, FAILED, RUNNING, Noted, Recording
from dovetail.progress import LINE_S, REDRAW_S, clock_time, short

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group
    from rich.table import Table
    from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"
STRIP = "━"
LABELS = 11  # characters
COLOURS = {
    "preparing": "bright_black",
    "arriving": "blue",
    "reactive": "yellow",
    "waiting": "bright_black",
    "cleanup": "green",
    "done": "bold green",
    "stopped": "bold yellow",
    "failed": "bold red",
    "stalled": "yellow",
    "ended": "bright_black",
}


@contextmanager
def show(recording: Recording, file: TextIO | None = None, console: Console | None = None) -> Iterator[None]:
    """Show a run while it goes on: a panel on a terminal, and elsewhere a line of plain text now and then."""
    stream = sys.stderr if file is None else file
    over = threading.Event()
    draw = _panel(recording, stream, console) if console is not None or stream.isatty() else _lines(recording, stream)
    next(draw)

    def redraw() -> None:
        while not over.wait(REDRAW_S):
            next(draw)

    thread = threading.Thread(target=copy_context().run, args=(redraw,), name="dovetail-live", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        draw.close()


def _panel(recording: Recording, stream: TextIO, console: Console | None) -> Generator[None, None, None]:
    from rich.console import Console
    from rich.live import Live

    live = Live(
        Panel(recording),
        console=console or Console(file=stream),
        auto_refresh=False,
        redirect_stdout=False,  # what others print stays where they print it
        redirect_stderr=False,
    )
    with live:
        try:
            while True:
                live.refresh()
                yield
        finally:
            live.refresh()


def _lines(recording: Recording, stream: TextIO) -> Generator[None, None, None]:
    due = LINE_S
    try:
        while True:
            if recording.seconds >= due:
                due = recording.seconds + LINE_S
                stream.write(line(recording) + "\n")
                stream.flush()
            yield
    finally:
        stream.write(line(recording) + "\n")
        stream.flush()


def line(recording: Recording) -> str:
    """All in one line."""
    last = recording.latest
    words = [clock_time(recording.seconds), figures.state(recording), f"{last.results:,} results"]
    if recording.outcome != DONE and last.estimate is not None:
        words.append(f"expected {figures.expectation(recording)}")
    if last.resident_rows is not None:
        words.append(f"{last.resident_rows:,} rows in memory")
    if last.spilled_rows:
        words.append(f"{last.spilled_rows:,} on disk")
    words += [f"{source.name} {source.state} {source.rows:,}" for source in figures.sources(recording)]
    return "  ".join(words)


class Panel:
    """What there is to see of a recording, for a console of any width."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Group]:
        yield self._drawn(min(options.max_width, 100))

    def _drawn(self, width: int) -> Group:
        from rich.console import Group
        from rich.text import Text

        recording = self._recording
        wide = max(10, width - LABELS)
        rows = [self._heading(width), Text(), self._state()]
        if recording.moments:
            rows += [self._results(), *_spark(recording.moments, wide, LABELS)]
        if (held := self._held()) is not None:
            rows.append(held)
        rows += list(self._sources())
        if note := figures.missing(recording):
            rows += [Text(), Text(note, "bold red" if recording.outcome == FAILED else "yellow")]
        return Group(*rows)

    def _heading(self, width: int) -> Group | Table:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        heading = self._recording.heading
        if heading is None:
            return Group(Text("not yet begun", "bright_black"))
        how = heading.algorithm
        if heading.memory_bytes is not None:
            how += f", {figures.size(heading.memory_bytes)}"
        top = Table.grid(expand=True)
        top.width = width
        top.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
        top.add_column(justify="right", no_wrap=True)
        top.add_row(Text(heading.title, "bold"), Text(how, "bright_black"))
        return Group(top, Text(heading.on, "cyan", no_wrap=True, overflow="ellipsis"))

    def _state(self) -> Text:
        state = figures.state(self._recording)
        said = figures.PHASES.get(state) or figures.OUTCOMES.get(state, "")
        return _row(("● " + state, COLOURS.get(state, "")), (said if said != state else "", "bright_black"), label="")

    def _results(self) -> Text:
        recording = self._recording
        parts = [
            (f"{recording.latest.results:,}", "bold"),
            (f"{short(figures.rate(recording))}/s", ""),
            (clock_time(recording.seconds), "bright_black"),
        ]
        if recording.outcome == RUNNING and recording.latest.estimate is not None:
            parts.append((f"of {figures.expectation(recording)}", "magenta"))
        return _row(*parts, label="results")

    def _held(self) -> Text | None:
        last = self._recording.latest
        if last.resident_rows is None:
            return None
        parts = [(f"{last.resident_rows:,} rows in memory", "")]
        if last.spilled_rows is not None:
            parts.append((f"{last.spilled_rows:,} on disk", "" if last.spilled_rows else "bright_black"))
        return _row(*parts, label="held")

    def _sources(self) -> Iterator[Text]:
        for source in figures.sources(self._recording):
            state = source.state.ljust(8)
            yield _row((state, COLOURS.get(source.state, "")), (f"{source.rows:,} rows", ""), label=source.name)


def _row(*parts: tuple[str, str], label: str) -> Text:
    from rich.text import Text

    name = label if len(label) < LABELS else label[: LABELS - 2] + "…"
    text = Text(name.ljust(LABELS) if label else "", "bright_black", no_wrap=True, overflow="ellipsis")
    for number, (words, style) in enumerate(parts):
        text.append(("   " if number else "") + words, style)
    return text


def _spark(moments: Sequence[Noted], width: int, indent: int) -> list[Text]:
    """New results in each span of time, and below them what the join was busy with then."""
    from rich.text import Text

    end = max(moments[-1].second, 1e-9)
    gained = gains(moments, width)
    top = max(gained) or 1.0
    bars, strip = Text(" " * indent), Text(" " * indent)
    bands = figures.phase_bands(moments) or [figures.Band(0.0, end, moments[-1].moment.phase)]
    number = 0
    for column, gain in enumerate(gained):
        middle = (column + 0.5) / width * end
        while number < len(bands) - 1 and bands[number].end <= middle:
            number += 1
        colour = COLOURS.get(bands[number].state, "")
        height = (gain / top) ** 0.5  # a burst must not flatten all the rest
        bars.append(BARS[min(len(BARS) - 1, int(height * len(BARS)))] if gain else " ", colour)
        strip.append(STRIP, colour)
    return [bars, strip]


def gains(moments: Sequence[Noted], columns: int) -> list[float]:
    """New results in each of so many equal spans of time; what was found between two moments came evenly."""
    end = max(moments[-1].second, 1e-9)
    edges = [end * column / columns for column in range(columns + 1)]
    totals, at = [], 0
    for edge in edges:
        while at < len(moments) - 1 and moments[at + 1].second <= edge:
            at += 1
        before, after = moments[at], moments[min(at + 1, len(moments) - 1)]
        gone = after.second - before.second
        share = (edge - before.second) / gone if gone > 0 else 0.0
        totals.append(before.moment.results + share * (after.moment.results - before.moment.results))
    return [after - before for before, after in pairwise(totals)]
