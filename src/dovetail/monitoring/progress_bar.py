"""A progress bar for long runs: on a terminal, in a notebook, or as lines of plain text.

    joining  ━━━━━╸━━━━━━━━━━━━━━  12.3M of ~45.0M  27 %  4.10M/s  0:03  0:08 left

A run reports `Progress` values at any time. A thread draws the latest one a few times a second. The output depends only
on these values and the clock.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from dovetail.core.metrics import Observer, Progress
from dovetail.kernels.compiling import compiling_reported
from dovetail.monitoring.formatting import clock_time, format_share, short
from dovetail.monitoring.screens import DELAY_S, LINE_S, CellOutput, in_notebook, live_display, redraw_in_thread

if TYPE_CHECKING:
    from rich.table import Table

RATE_S = 5.0  # window over which the rate is measured
BAR_WIDTH = 20  # less on a narrow terminal
COMPILING, AHEAD = "compiling kernels, once", "`dovetail warmup` does it ahead"

Clock = Callable[[], float]


@contextmanager
def watched(wanted: bool | Observer | None) -> Iterator[Observer | None]:
    """The observer of a run's progress.

    None is automatic: a bar on a terminal or in a notebook, once the run has taken a second. True shows a bar from the
    start, or lines of plain text if a bar is not possible. False shows nothing. A function is called with the progress.
    """
    if callable(wanted):
        yield wanted
        return
    with _own_copy(sys.stderr) as stream:
        screen = None if wanted is False else _screen(stream, lines=wanted is True)
        if screen is None:
            yield None
            return
        bar = Bar(screen, delay_s=0.0 if wanted else DELAY_S)
        try:
            with compiling_reported(bar.compiles), redraw_in_thread(bar.draw, "dovetail-progress"):
                yield bar
        finally:
            bar.close()


@contextmanager
def _own_copy(stream: TextIO) -> Iterator[TextIO]:
    """A copy of the terminal that still works while standard error is redirected to a file, as during Spark's start."""
    if not stream.isatty():
        yield stream
        return
    with open(os.dup(stream.fileno()), "w", encoding=stream.encoding) as copy:
        yield copy


def _screen(stream: TextIO, *, lines: bool) -> Screen | None:
    if in_notebook():
        return NotebookScreen()
    if stream.isatty():
        return TerminalScreen(stream)
    return LineScreen(stream) if lines else None


class Meter:
    """Progress over time: the rate, the elapsed time and the time left."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._phase = ""
        self._steps: deque[tuple[float, int]] = deque()  # of this phase: time and results
        self.progress = Progress("preparing")
        self.is_compiling = False

    @property
    def phase(self) -> str:
        return COMPILING if self.is_compiling else self.progress.phase

    def step(self) -> None:
        """Record the current progress."""
        now, progress = self._clock(), self.progress
        if self._phase != progress.phase:  # counts start again in each phase
            self._phase = progress.phase
            self._steps.clear()
        self._steps.append((now, progress.results))
        while len(self._steps) > 2 and self._steps[1][0] <= now - RATE_S:
            self._steps.popleft()

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._began

    @property
    def rate(self) -> float:
        """Results per second."""
        if len(self._steps) < 2:
            return 0.0
        (first, before), (last, results) = self._steps[0], self._steps[-1]
        return (results - before) / (last - first) if last > first else 0.0

    @property
    def total(self) -> int | None:
        total = self.progress.total
        return None if total is None else max(total, self.progress.results)

    def words(self) -> list[str]:
        """The text beside the bar."""
        results, total, rate = self.progress.results, self.total, self.rate
        words = []
        if self.is_compiling:
            return [clock_time(self.elapsed_s), AHEAD]
        if total is not None:
            about = "" if self.progress.exact else "~"
            words.append(f"{short(results)} of {about}{short(total)}")
            words.append(format_share(results / max(1, total)))
        elif results:
            words.append(f"{short(results)} results")
        if rate:
            words.append(f"{short(rate)}/s")
        words.append(clock_time(self.elapsed_s))
        if rate and total is not None and total > results:
            words.append(f"{clock_time((total - results) / rate)} left")
        return words

    def __rich__(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        total = self.total
        bar = ProgressBar(total or 1, self.progress.results, pulse=total is None, animation_time=self._clock())
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, min_width=len(self.phase))
        grid.add_column(max_width=BAR_WIDTH)
        grid.add_column(no_wrap=True)
        grid.add_row(Text(self.phase, "bold"), bar, Text("  ".join(self.words())))
        return grid

    def __str__(self) -> str:
        return "  ".join([self.phase, *self.words()])


class Screen(Protocol):
    """The display of a meter."""

    def show(self, meter: Meter) -> None: ...
    def close(self, meter: Meter) -> None:
        """The last display. The meter has been shown before."""


class Bar:
    """An observer that displays the progress it receives."""

    def __init__(self, screen: Screen, clock: Clock = time.monotonic, delay_s: float = DELAY_S) -> None:
        self._screen = screen
        self._meter = Meter(clock)
        self._delay_s = delay_s
        self._shown = False

    def __call__(self, progress: Progress) -> None:
        self._meter.progress = progress

    def compiles(self, begun: bool) -> None:
        """The compilation of a kernel has begun or ended."""
        self._meter.is_compiling = begun

    def draw(self) -> None:
        self._meter.step()
        if self._meter.elapsed_s >= self._delay_s:
            self._screen.show(self._meter)
            self._shown = True

    def close(self) -> None:
        if self._shown:
            self._meter.step()
            self._screen.close(self._meter)


class TerminalScreen:
    """One line that is redrawn, and removed at the end."""

    def __init__(self, stream: TextIO, console: Any = None) -> None:
        self._stream = stream
        self._console = console
        self._live: Any = None

    def show(self, meter: Meter) -> None:
        if self._live is None:
            self._live = live_display(meter, self._stream, self._console, transient=True)
            self._live.start()
        self._live.refresh()

    def close(self, meter: Meter) -> None:
        self._live.stop()


class NotebookScreen:
    """One line of output that is replaced, and kept at the end."""

    def __init__(self) -> None:
        self._output = CellOutput()

    def show(self, meter: Meter) -> None:
        self._output.show({"text/plain": _as_text(meter)})

    def close(self, meter: Meter) -> None:
        self._output.show({"text/plain": str(meter)})


class LineScreen:
    """Periodic lines of plain text, and one at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next_s = LINE_S

    def show(self, meter: Meter) -> None:
        if meter.elapsed_s >= self._next_s:
            self._next_s = meter.elapsed_s + LINE_S
            self.close(meter)

    def close(self, meter: Meter) -> None:
        self._stream.write(f"{meter}\n")
        self._stream.flush()


def _as_text(meter: Meter) -> str:
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=120, color_system=None, force_jupyter=False).print(meter)
    return text.getvalue().rstrip()
