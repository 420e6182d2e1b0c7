"""Displays a running join: a panel on a terminal, a chart in a notebook, or lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dovetail.monitoring import snapshot as figures
from dovetail.monitoring.formatting import clock_time, format_bytes, short
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.screens import LINE_S, CellOutput, in_notebook, live_display, redraw_in_thread
from dovetail.monitoring.snapshot import FAILED, Heading, Noted, RunSnapshot
from dovetail.visible import visible

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
    """A run, rendered in its current state."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if self._recording.heading is None:
            yield Text("not yet begun", "bright_black")
        else:
            yield Group(*_rows(self._recording.snapshot(), min(options.max_width, WIDEST)))


def _rows(snapshot: RunSnapshot, width: int) -> Iterator[RenderableType]:
    yield _title(snapshot.heading, width)
    yield Text(visible(snapshot.heading.on, one_line=True), "cyan", no_wrap=True, overflow="ellipsis")
    yield Text()
    yield _state(snapshot)
    yield _results(snapshot)
    if snapshot.running and snapshot.latest.objection is not None:
        yield _row((f"not known: {snapshot.latest.objection}", "bright_black"), label="expected")
    yield from _spark(snapshot.moments, max(10, width - LABELS))
    yield from _render_held(snapshot)
    for source in figures.sources(snapshot):
        state = source.state.ljust(8)
        yield _row((state, COLOURS.get(source.state, "")), (f"{source.rows:,} rows", ""), label=source.name)
    if note := figures.missing(snapshot):
        yield Text()
        yield Text(visible(note), "bold red" if snapshot.outcome == FAILED else "yellow")


def _title(heading: Heading, width: int) -> Table:
    how = heading.algorithm
    if heading.memory_bytes is not None:
        how += f", {format_bytes(heading.memory_bytes)}"
    top = Table.grid(expand=True)
    top.width = width
    top.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
    top.add_column(justify="right", no_wrap=True)
    top.add_row(Text(visible(heading.title, one_line=True), "bold"), Text(visible(how, one_line=True), "bright_black"))
    return top


def _state(snapshot: RunSnapshot) -> Text:
    state = figures.state(snapshot)
    return _row((f"● {state}", COLOURS.get(state, "")), (figures.describe_state(snapshot), "bright_black"))


def _results(snapshot: RunSnapshot) -> Text:
    parts = [
        (f"{snapshot.latest.results:,}", "bold"),
        (f"{short(figures.rate(snapshot))}/s", ""),
        (clock_time(snapshot.seconds), "bright_black"),
    ]
    if snapshot.running and snapshot.latest.estimate is not None:
        parts.append((f"of {figures.expectation(snapshot)}", "magenta"))
    return _row(*parts, label="results")


def _render_held(snapshot: RunSnapshot) -> Iterator[Text]:
    resident, spilled = snapshot.latest.resident_rows, snapshot.latest.spilled_rows
    if resident is not None:
        parts = [(f"{resident:,} rows in memory", "")]
        if spilled is not None:
            parts.append((f"{spilled:,} on disk", "" if spilled else "bright_black"))
        parts += [(f"{figure.now} {figure.label}", "") for figure in figures.shown_figures(snapshot)]
        yield _row(*parts, label="held")


def _row(*parts: tuple[str, str], label: str = "") -> Text:
    label = visible(label, one_line=True)
    name = label if len(label) < LABELS else label[: LABELS - 2] + "…"
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(name.ljust(LABELS) if label else "", "bright_black")
    for number, (words, style) in enumerate(parts):
        text.append(("   " if number else "") + visible(words, one_line=True), style)
    return text


def _spark(moments: Sequence[Noted], width: int) -> list[Text]:
    """New results in each span of time, and below them the state of the join."""
    end = max(moments[-1].second, 1e-9)
    gained = gains(moments, width)
    top = max(gained) or 1.0
    bars, strip = Text(" " * LABELS), Text(" " * LABELS)
    bands = figures.phase_bands(moments) or [figures.StateSpan(0.0, end, moments[-1].moment.phase)]
    number = 0
    for column, gain in enumerate(gained):
        middle = (column + 0.5) / width * end
        while number < len(bands) - 1 and bands[number].end <= middle:
            number += 1
        colour = COLOURS.get(bands[number].state, "")
        height = (gain / top) ** 0.5  # square root, so that a burst does not flatten the rest
        bars.append(BARS[min(len(BARS) - 1, int(height * len(BARS)))] if gain else " ", colour)
        strip.append(STRIP, colour)
    return [bars, strip]


def gains(moments: Sequence[Noted], columns: int) -> list[float]:
    """New results in each of `columns` equal spans of time; results between two moments are spread evenly."""
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


Drawing = Generator[None, None, None]
"""Redraws at each step, and for the last time when it is closed."""


@contextmanager
def show(recording: Recording, file: TextIO | None = None, console: Console | None = None) -> Iterator[None]:
    """Show a join while it runs, and its outcome.

    Shows a panel on a terminal, a chart in a notebook, and periodic lines of plain text elsewhere.

    Args:
        recording: The `record=` of the join.
        file: The output; by default standard error, or the notebook.
        console: A rich console, to force a panel.

    Example:
        >>> import dovetail, io, pyarrow as pa
        >>> table, recording, out = pa.table({"k": range(1000)}), dovetail.Recording(), io.StringIO()
        >>> with dovetail.show(recording, file=out):
        ...     steps = list(dovetail.progressive(table, table, "l.k = r.k", record=recording))
        >>> out.getvalue().split("  ")[1:3]
        ['done', '1,000 results']
    """
    with draw(recording, file, console):
        yield


@contextmanager
def draw(
    recording: Recording, file: TextIO | None = None, console: Console | None = None, delay_s: float = 0.0
) -> Iterator[None]:
    """Like `show`, but in a notebook only for runs longer than the delay."""
    stream = sys.stderr if file is None else file
    drawing: Drawing
    if file is None and console is None and in_notebook():
        drawing = draw_in_cell(recording, delay_s)
    elif console or stream.isatty():
        drawing = _panel(recording, stream, console)
    else:
        drawing = _lines(recording, stream)
    next(drawing)
    try:
        with redraw_in_thread(lambda: next(drawing), "dovetail-live"):
            yield
    finally:
        drawing.close()


def _panel(recording: Recording, stream: TextIO, console: Console | None) -> Drawing:
    live = live_display(Panel(recording), stream, console)
    with live:
        try:
            while True:
                live.refresh()
                yield
        finally:
            live.refresh()


def _lines(recording: Recording, stream: TextIO) -> Drawing:
    due = LINE_S
    try:
        while True:
            if recording.seconds >= due:
                due = recording.seconds + LINE_S
                _write(stream, recording)
            yield
    finally:
        _write(stream, recording)


def _write(stream: TextIO, recording: Recording) -> None:
    stream.write(line(recording) + "\n")
    stream.flush()


def line(recording: Recording) -> str:
    """The state of a run in one line."""
    snapshot = recording.snapshot()
    last = snapshot.latest
    words = [clock_time(snapshot.seconds), figures.state(snapshot), f"{last.results:,} results"]
    if snapshot.running and last.estimate is not None:
        words.append(f"expected {figures.expectation(snapshot)}")
    if last.resident_rows is not None:
        words.append(f"{last.resident_rows:,} rows in memory")
    if last.spilled_rows:
        words.append(f"{last.spilled_rows:,} on disk")
    words += [f"{figure.now} {figure.label}" for figure in figures.shown_figures(snapshot)]
    words += [f"{source.name} {source.state} {source.rows:,}" for source in figures.sources(snapshot)]
    return visible("  ".join(words), one_line=True)


def draw_in_cell(recording: Recording, delay_s: float) -> Generator[None, None, None]:
    """A cell output that is replaced at each step. Runs shorter than the delay have none."""
    output = CellOutput()

    def draw() -> None:
        if output.is_shown or (recording.heading is not None and recording.seconds >= delay_s):
            output.show({"text/html": recording._repr_html_(), "text/plain": repr(recording)})

    try:
        while True:
            draw()
            yield
    finally:
        draw()
