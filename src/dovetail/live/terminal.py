"""A running join in the terminal: a panel that is redrawn a few times a second, or lines where there is no terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import TYPE_CHECKING, TextIO

from dovetail.live import figures
from dovetail.live.recording import Recording
from dovetail.progress import LINE_S, REDRAW_S, clock_time

if TYPE_CHECKING:
    from rich.console import Console

Drawing = Generator[None, None, None]
"""Draws whenever it is asked to go on, and a last time when it is closed."""


@contextmanager
def show(recording: Recording, file: TextIO | None = None, console: Console | None = None) -> Iterator[None]:
    """Show a run while it goes on: a panel on a terminal, and elsewhere a line of plain text now and then."""
    stream = sys.stderr if file is None else file
    over = threading.Event()
    drawing = _panel(recording, stream, console) if console or stream.isatty() else _lines(recording, stream)
    next(drawing)

    def redraw() -> None:
        while not over.wait(REDRAW_S):
            next(drawing)

    thread = threading.Thread(target=copy_context().run, args=(redraw,), name="dovetail-live", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        drawing.close()


def _panel(recording: Recording, stream: TextIO, console: Console | None) -> Drawing:
    from rich.console import Console
    from rich.live import Live

    from dovetail.live.panel import Panel  # takes a while to import: only for those who see it

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
    """All in one line."""
    glance = recording.glance()
    last = glance.latest
    words = [clock_time(glance.seconds), figures.state(glance), f"{last.results:,} results"]
    if glance.running and last.estimate is not None:
        words.append(f"expected {figures.expectation(glance)}")
    if last.resident_rows is not None:
        words.append(f"{last.resident_rows:,} rows in memory")
    if last.spilled_rows:
        words.append(f"{last.spilled_rows:,} on disk")
    words += [f"{source.name} {source.state} {source.rows:,}" for source in figures.sources(glance)]
    return "  ".join(words)
