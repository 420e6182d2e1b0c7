"""The demo's script and screen, without Spark."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest
from rich.console import Console

from dovetail.demo.scene import Rival, Scene
from dovetail.demo.screen import HEIGHT, PHASES, ScenePanel, headline, line, side_by_side, summary
from dovetail.demo.senders import (
    FIRST,
    GRAIN_S,
    ORDERS,
    PAYMENTS,
    ROWS,
    in_bursts,
    is_silent,
    senders,
    silences,
    write_script,
)


def test_rows_come_in_bursts_and_never_in_a_silence() -> None:
    for bursts in (ORDERS, PAYMENTS):
        seconds = in_bursts(ROWS, bursts)
        assert len(seconds) == ROWS
        assert np.all(np.diff(seconds) >= 0)
        assert np.count_nonzero(seconds == 0.0) == FIRST
        assert seconds[-1] == pytest.approx(sum(map(sum, bursts)), abs=0.05)
        assert not any(is_silent(bursts, s) and is_silent(bursts, s - 2 * GRAIN_S) for s in seconds[FIRST::97])


def test_there_is_time_in_which_nobody_sends() -> None:
    found = silences(ORDERS, PAYMENTS)
    assert len(found) == 2
    for start, end in found:
        assert end - start > 3
        assert is_silent(ORDERS, (start + end) / 2)
        assert is_silent(PAYMENTS, (start + end) / 2)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A run in which ten results are found in each half second, with a simulated clock."""
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    with senders(write_script()) as both:
        scene = Scene("dovetail", both, Rival(lambda: (600, None)))
        scene.look()
        assert scene.phase == "starting"
        scene.begin()
        for _ in range(60):
            clock[0] += 0.5
            arrived = sum(sender.sent for sender in both) - scene.joined
            scene.keeps(100, 50)
            scene.record_results(10, arrived)
            scene.look()
        yield scene


def test_a_silence_begins_when_spark_has_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    start, end = silences(ORDERS, PAYMENTS)[0]
    with senders(write_script()) as both:
        scene = Scene("dovetail", both, Rival(lambda: (600, None)))
        scene.begin()
        for _ in range(40):  # nothing is read
            clock[0] += 0.5
            scene.look()
        assert scene.phase == "arriving"
        assert scene.elapsed == 20.0
        assert start <= both[0].rows.elapsed() < start + 1
        scene.record_results(0, sum(sender.sent for sender in both))
        scene.look()
        assert scene.phase == "silent"
        clock[0] += end - start + 1
        scene.look()
        assert scene.phase == "arriving"


def test_results_are_not_of_rows_on_disk_while_there_are_none() -> None:
    with senders(write_script()) as both:
        scene = Scene("dovetail", both, Rival(lambda: (600, None)))
        scene.keeps(100, 0)
        scene.record_results(7, arrived=0)
        assert scene.of_spilled == 0
        scene.keeps(100, 50)
        scene.record_results(7, arrived=0)
        assert scene.of_spilled == 7


def drawn(thing: object, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(thing)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 120])
def test_the_number_of_results_comes_first(scene: Scene, width: int) -> None:
    """600 results, three lines high."""
    lines = drawn(ScenePanel(scene), width)[:3]
    assert [line[2:13] for line in lines] == ["█▀▀ █▀█ █▀█", "█▀█ █ █ █ █", "▀▀▀ ▀▀▀ ▀▀▀"]
    assert "Spark's own join: 0" in lines[2]
    assert "33 % of the rows" not in "".join(lines)


def test_what_is_kept_is_a_share(scene: Scene) -> None:
    """Rows of one input are in every cell, so cells hold more rows than were sent."""
    assert any("67% of the rows in memory, 33% on disk" in line for line in drawn(ScenePanel(scene), 80))
    scene.ended = 131.0
    assert any("at most 100 rows in memory at a time, in 2 cells" in line for line in drawn(ScenePanel(scene), 80))


def test_the_headline_is_what_came_early(scene: Scene) -> None:
    scene.rival.seconds = 15.0
    lines = drawn(headline(scene), 80)
    assert len(lines) == 3
    assert lines[1].endswith("360 of 600")
    assert [line[2:9] for line in drawn(headline(scene), 80)] == ["█▀▀ █▀█", "█▀█ █ █", "▀▀▀ ▀▀▀"]


def test_phases_follow_the_senders(scene: Scene) -> None:
    phases = {round(moment.script_s, 1): moment.phase for moment in scene.history}
    (first_start, first_end), _ = silences(ORDERS, PAYMENTS)
    assert all(phase == "silent" for when, phase in phases.items() if first_start + 0.5 < when < first_end)
    assert all(phase == "arriving" for when, phase in phases.items() if when < first_start - 0.5)
    assert 0 < scene.of_spilled < scene.results == 600


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("phase", list(PHASES))
def test_every_frame_fits_and_has_the_same_height(scene: Scene, width: int, phase: str) -> None:
    scene.phase = phase
    lines = drawn(ScenePanel(scene), width)
    assert len(lines) == 10 + HEIGHT + 1 + HEIGHT + 3
    assert max(map(len, lines)) <= width


def test_the_comparison_reads_off_both_runs(scene: Scene) -> None:
    table = "\n".join(drawn(side_by_side([scene, scene]), 80))
    end = silences(ORDERS, PAYMENTS)[0][1]
    assert "at the end of stall 2" in table
    assert f"{scene.results_at(end):,}" in table
    assert "complete after" in table


def test_both_joins_are_summed_up(scene: Scene) -> None:
    """Ours completes first; Spark's own join has all its results at once, at the end."""
    scene.ended = 131.0
    scene.rival.start()
    scene.rival._thread.join()  # type: ignore[union-attr]
    assert scene.is_over
    scene.rival.seconds = 15.0
    _, ours, theirs = [line.split() for line in drawn(summary(scene), 80)]
    assert ours[:5] == ["dovetail", "360", "results", "60", "%"]  # the others were found after the last row
    assert ours[5:] == ["after", "31.0", "s"]
    assert theirs[2:] == ["0", "results", "0", "%", "after", "33.0", "s"]
    charts = drawn(ScenePanel(scene), 80)[10:]
    assert "█" in charts[0]
    bars = [line[14:].strip() for line in charts[HEIGHT + 1 : 2 * HEIGHT + 1]]
    assert bars == ["█"] * HEIGHT  # all of them in the last second


def test_what_spark_fails_with_is_raised(scene: Scene) -> None:
    def fail() -> None:
        raise OSError("no")

    rival = Rival(fail)  # type: ignore[arg-type]
    rival.start()
    rival._thread.join()  # type: ignore[union-attr]
    with pytest.raises(OSError, match="no"):
        _ = rival.is_over


def test_a_plain_line_is_one_line(scene: Scene) -> None:
    assert len(line(scene)) < 80
    assert "results" in line(scene)
