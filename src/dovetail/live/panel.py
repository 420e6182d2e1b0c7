"""What a console of any width shows of a run.

orders ⋈ payments                                                           diner, 64 MB
l.id = r.order_id

● reactive   nothing arrives; rows that were set aside are joined meanwhile
results    1,204,331   48.1k/s   0:12   of about 2.31M, 2.20M to 2.42M with 95 %
           ▁▂▂▃▅▇█▆▄▃▂▁▁▁▂▃▅▆
           ━━━━━━━━━━━━━━━━━━           in colours: what it was busy with then
held       61,200 rows in memory   301,442 on disk
orders     stalled    402,118 rows
payments   arriving   388,001 rows
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dovetail.live import figures
from dovetail.live.glance import FAILED, Glance, Heading, Noted
from dovetail.live.recording import Recording
from dovetail.progress import clock_time, short

BARS = "▁▂▃▄▅▆▇█"
STRIP = "━"
LABELS = 11  # characters
WIDEST = 100
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


class Panel:
    """A run, drawn as it is whenever it is drawn."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if self._recording.heading is None:
            yield Text("not yet begun", "bright_black")
        else:
            yield Group(*_rows(self._recording.glance(), min(options.max_width, WIDEST)))


def _rows(glance: Glance, width: int) -> Iterator[RenderableType]:
    yield _title(glance.heading, width)
    yield Text(glance.heading.on, "cyan", no_wrap=True, overflow="ellipsis")
    yield Text()
    yield _state(glance)
    yield _results(glance)
    if glance.running and glance.latest.objection is not None:
        yield _row((f"not known: {glance.latest.objection}", "bright_black"), label="expected")
    yield from _spark(glance.moments, max(10, width - LABELS))
    yield from _held(glance)
    for source in figures.sources(glance):
        state = source.state.ljust(8)
        yield _row((state, COLOURS.get(source.state, "")), (f"{source.rows:,} rows", ""), label=source.name)
    if note := figures.missing(glance):
        yield Text()
        yield Text(note, "bold red" if glance.outcome == FAILED else "yellow")


def _title(heading: Heading, width: int) -> Table:
    how = heading.algorithm
    if heading.memory_bytes is not None:
        how += f", {figures.size(heading.memory_bytes)}"
    top = Table.grid(expand=True)
    top.width = width
    top.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
    top.add_column(justify="right", no_wrap=True)
    top.add_row(Text(heading.title, "bold"), Text(how, "bright_black"))
    return top


def _state(glance: Glance) -> Text:
    state = figures.state(glance)
    said = figures.PHASES.get(state) or figures.OUTCOMES.get(state, "")
    return _row((f"● {state}", COLOURS.get(state, "")), (said if said != state else "", "bright_black"))


def _results(glance: Glance) -> Text:
    parts = [
        (f"{glance.latest.results:,}", "bold"),
        (f"{short(figures.rate(glance))}/s", ""),
        (clock_time(glance.seconds), "bright_black"),
    ]
    if glance.running and glance.latest.estimate is not None:
        parts.append((f"of {figures.expectation(glance)}", "magenta"))
    return _row(*parts, label="results")


def _held(glance: Glance) -> Iterator[Text]:
    resident, spilled = glance.latest.resident_rows, glance.latest.spilled_rows
    if resident is not None:
        parts = [(f"{resident:,} rows in memory", "")]
        if spilled is not None:
            parts.append((f"{spilled:,} on disk", "" if spilled else "bright_black"))
        yield _row(*parts, label="held")


def _row(*parts: tuple[str, str], label: str = "") -> Text:
    name = label if len(label) < LABELS else label[: LABELS - 2] + "…"
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(name.ljust(LABELS) if label else "", "bright_black")
    for number, (words, style) in enumerate(parts):
        text.append(("   " if number else "") + words, style)
    return text


def _spark(moments: Sequence[Noted], width: int) -> list[Text]:
    """New results in each span of time, and below them what the join was busy with then."""
    end = max(moments[-1].second, 1e-9)
    gained = gains(moments, width)
    top = max(gained) or 1.0
    bars, strip = Text(" " * LABELS), Text(" " * LABELS)
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
    totals, at = [], 0
    for column in range(columns + 1):
        edge = end * column / columns
        while at < len(moments) - 1 and moments[at + 1].second <= edge:
            at += 1
        before, after = moments[at], moments[min(at + 1, len(moments) - 1)]
        gone = after.second - before.second
        share = (edge - before.second) / gone if gone > 0 else 0.0
        totals.append(before.moment.results + share * (after.moment.results - before.moment.results))
    return [after - before for before, after in pairwise(totals)]
