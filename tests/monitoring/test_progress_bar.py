import io
import os
import pty
import select
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from tests.patience import PATIENCE_S

from dovetail.core.metrics import Progress
from dovetail.monitoring.formatting import clock_time, short
from dovetail.monitoring.progress_bar import (
    Bar,
    LineScreen,
    Meter,
    NotebookScreen,
    TerminalScreen,
    watched,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def terminal(width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


def drawn(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_bar_on_a_terminal() -> None:
    clock, console = Clock(), terminal()
    bar = Bar(TerminalScreen(io.StringIO(), console), clock)
    bar(Progress("preparing"))
    clock.now = 0.9
    bar.draw()
    assert drawn(console) == ""
    clock.now = 1.0
    bar.draw()
    assert "preparing" in drawn(console)
    bar(Progress("joining"))
    bar.draw()
    bar(Progress("joining", 12_300_000, 45_000_000, exact=False))
    clock.now = 4.0
    bar.draw()
    assert drawn(console).rstrip().endswith("12.3M of ~45.0M  27 %  4.10M/s  0:04  0:08 left")
    assert "joining  ━━━━━" in drawn(console)
    bar.close()
    assert drawn(console).endswith("\x1b[2K")  # the line is erased


@pytest.mark.parametrize("width", [60, 120])
def test_a_kernel_that_is_compiled(width: int) -> None:
    """It takes seconds, but only once: the line says so, and how to do it in advance."""
    clock, console = Clock(), terminal(width)
    bar = Bar(TerminalScreen(io.StringIO(), console), clock, delay_s=0.0)
    bar(Progress("joining", 5))
    bar.compiles(True)
    clock.now = 3.0
    bar.draw()
    assert "compiling kernels, once  " in drawn(console)
    assert ("`dovetail warmup` does it ahead" in drawn(console)) == (width == 120)
    bar.compiles(False)
    bar.draw()
    assert "5 results" in drawn(console)
    bar.close()


def test_a_short_run_draws_nothing() -> None:
    clock, console = Clock(), terminal()
    bar = Bar(TerminalScreen(io.StringIO(), console), clock)
    bar(Progress("joining", 10, 10))
    bar.draw()
    bar.close()
    assert drawn(console) == ""


def test_on_a_narrow_terminal_the_bar_gives_way() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.progress = Progress("joining")
    meter.step()
    clock.now = 5000.0
    meter.progress = Progress("joining", 12_300_000, 45_000_000, exact=False)
    meter.step()
    for width in (72, 80, 200):
        console = terminal(width)
        console.print(meter)
        line = drawn(console).rstrip()
        assert line.startswith("joining  ━")
        assert line.endswith("12.3M of ~45.0M  27 %  2.46k/s  1:23:20  3:41:33 left")
        assert len(line) <= width


def test_words() -> None:
    clock = Clock()
    meter = Meter(clock)
    assert str(meter) == "preparing  0:00"
    meter.progress = Progress("joining", 5)
    meter.step()
    clock.now = 2.0
    meter.progress = Progress("joining", 105)
    meter.step()
    assert str(meter) == "joining  105 results  50/s  0:02"
    meter.progress = Progress("joining", 105, 100, exact=False)  # the estimate was too low
    assert str(meter) == "joining  105 of ~105  100 %  50/s  0:02"
    meter.progress = Progress("writing", 0, 105)  # each phase counts from zero
    meter.step()
    assert str(meter) == "writing  0 of 105  0 %  0:02"
    meter.progress = Progress("joining", 0, 0)
    assert "0 of 0" in str(meter)


def test_the_rate_is_that_of_the_last_seconds() -> None:
    clock = Clock()
    meter = Meter(clock)
    for second in range(100):
        clock.now = float(second)
        meter.progress = Progress("joining", 10 * min(second, 50) + 1000 * max(0, second - 50))
        meter.step()
    assert meter.rate == 1000


def test_lines_of_plain_text() -> None:
    clock, stream = Clock(), io.StringIO()
    bar = Bar(LineScreen(stream), clock, delay_s=0.0)
    for second in range(26):
        clock.now = float(second)
        bar(Progress("joining", second, 25))
        bar.draw()
    bar.close()
    assert stream.getvalue().splitlines() == [
        "joining  10 of 25  40 %  1/s  0:10  0:15 left",
        "joining  20 of 25  80 %  1/s  0:20  0:05 left",
        "joining  25 of 25  100 %  1/s  0:25",
    ]


def test_one_line_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def display(data: dict[str, str], **_: Any) -> SimpleNamespace:
        shown.append(data["text/plain"])
        return SimpleNamespace(update=display)

    ipython = SimpleNamespace(
        get_ipython=lambda: SimpleNamespace(kernel=None), display=SimpleNamespace(display=display)
    )
    monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]
    clock = Clock()
    bar = Bar(NotebookScreen(), clock, delay_s=0.0)
    bar.draw()
    bar(Progress("joining", 3, 4))
    bar.draw()
    bar.close()
    assert [line.split()[0] for line in shown] == ["preparing", "joining", "joining"]
    assert "━" in shown[1]
    with watched(None) as observer:
        assert isinstance(observer, Bar)


def test_who_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[Progress] = []
    with watched(None) as unset, watched(False) as no:  # standard error is not a terminal here
        assert unset is None
        assert no is None
    with watched(told.append) as mine:
        assert mine is not None
        mine(Progress("joining"))
    assert told == [Progress("joining")]
    with watched(True) as always:
        assert always is not None
    assert capsys.readouterr().err == ""


def test_it_is_seen_while_standard_error_goes_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As happens while Spark starts."""
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with watched(True) as bar, open(tmp_path / "log", "w") as log:
            assert isinstance(bar, Bar)
            os.dup2(log.fileno(), theirs)
            bar(Progress("starting Spark"))
            bar.draw()
        seen = b""
        while b"starting Spark" not in seen and select.select([ours], [], [], PATIENCE_S)[0]:
            seen += os.read(ours, 1 << 16)
    os.close(ours)
    assert b"starting Spark" in seen
    assert (tmp_path / "log").read_text() == ""


def test_numbers_and_times() -> None:
    assert [short(n) for n in (0, 7, 999, 1000, 12_345, 999_499, 999_999, 45_000_000, 1.2e9, 3.4e15)] == [
        *("0", "7", "999", "1.00k", "12.3k", "999k", "1.00M", "45.0M", "1.20G", "3400T"),
    ]
    assert [short(n) for n in (0.5, 9.996, 99.96)] == ["0.50", "10.0", "100"]
    assert [clock_time(s) for s in (0, 7.4, 754, 3723)] == ["0:00", "0:07", "12:34", "1:02:03"]
