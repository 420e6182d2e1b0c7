import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.monitoring.runs import HOSTILE, recorded

from dovetail.core.markup import Html, tag
from dovetail.core.metrics import Moment
from dovetail.errors import InputError
from dovetail.monitoring import formatting, plot
from dovetail.monitoring import snapshot as figures
from dovetail.monitoring.recording import Recording
from dovetail.monitoring.report import report
from dovetail.monitoring.snapshot import DONE, FAILED, MOST_MOMENTS, RUNNING, STOPPED, Heading, Noted

EMPTY = {"meta", "link"}


class Checker(HTMLParser):
    """Checks that elements are closed in order; records attributes that could fetch or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.fetched: list[str] = []
        self.attributes: list[str] = []
        self.text = ""

    def handle_starttag(self, element: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append(element)
        if element not in EMPTY:
            self.open.append(element)
        for name, value in attributes:
            self.attributes.append(name)
            if name in ("src", "href", "action", "srcset", "data", "poster"):
                self.fetched.append(value or "")

    def handle_endtag(self, element: str) -> None:
        assert self.open.pop() == element

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert page.startswith("<!doctype html>")
    assert not re.search(r"https?:|//[a-z]|url\(|@import|javascript:", page)
    assert set(checker.fetched) <= {"data:,"}
    assert not {name for name in checker.attributes if name.startswith("on")}
    return checker


@pytest.mark.parametrize("outcome", [DONE, STOPPED, FAILED, RUNNING])
@pytest.mark.parametrize("estimates", [True, False])
def test_a_report_is_one_file_that_fetches_nothing(tmp_path: Path, outcome: str, estimates: bool) -> None:
    path = report(recorded(outcome=outcome, error="OSError: no", estimates=estimates), tmp_path / "new" / "run.html")
    page = checked(path.read_text())
    assert "script" not in page.seen
    assert {"svg", "table", "dl", "h1", "h2", "title", "details"} <= set(page.seen)
    assert {"lang", "role", "aria-label", "scope"} <= set(page.attributes)
    assert "orders ⋈ payments" in page.text
    assert "3,600" in page.text
    assert "diner: asked for" in page.text
    assert ("estimate of the total" in page.text) == estimates
    assert ("the truth: 3,600" in page.text) == (estimates and outcome == DONE)
    assert ("OSError: no" in page.text) == (outcome == FAILED)
    assert ("there may be more" in page.text) == (outcome == STOPPED)
    assert path.stat().st_size < 100_000


def test_names_can_be_anything(tmp_path: Path) -> None:
    hostile = recorded(names=(HOSTILE, "</style><b>"), on=f"l.{HOSTILE} = r.k", outcome=FAILED, error=HOSTILE)
    hostile._latest = Moment(HOSTILE, {HOSTILE: 3}, {HOSTILE: 1.0}, sources=hostile.latest.sources)
    hostile.moments.append(hostile.moments[-1]._replace(moment=hostile.latest))
    page = checked(report(hostile, tmp_path / "run.html").read_text())
    assert "script" not in page.seen
    assert "img" not in page.seen
    assert HOSTILE in page.text


def test_from_the_file_of_a_recording(tmp_path: Path) -> None:
    recorded(tmp_path / "run.jsonl")
    report(tmp_path / "run.jsonl", tmp_path / "run.html")
    checked((tmp_path / "run.html").read_text())


def test_recordings_of_next_to_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing has been recorded"):
        report(Recording(), tmp_path / "run.html")
    with pytest.raises(InputError, match="not a recording"):
        report(tmp_path / "nowhere", tmp_path / "run.html")
    recording = Recording()
    recording.begin(Heading("TRUE", ()))
    checked(report(recording, tmp_path / "run.html").read_text())
    with pytest.raises(InputError, match="cannot be written"):
        report(recording, tmp_path)


def test_whatever_is_not_markup_is_escaped() -> None:
    assert tag("p", "<&>", Html("<b>"), None, class_='"', title=None) == '<p class="&quot;">&lt;&amp;&gt;<b></p>'
    assert plot.class_name("arriving") == "is-arriving"
    assert plot.class_name('x" onload="') == "is-other"


def test_bands_are_what_took_the_most_time() -> None:
    spans = figures.phase_bands(recorded().moments)
    assert [(round(span.start, 1), round(span.end, 1), span.state) for span in spans] == [
        (0.0, 3.0, "arriving"),
        (3.0, 5.0, "reactive"),
        (5.0, 6.0, "waiting"),
        (6.0, 9.0, "arriving"),
        (9.0, 10.0, "cleanup"),
    ]
    assert [span.state for span in figures.source_bands(recorded().moments, 1)] == [
        *("arriving", "stalled", "arriving", "ended")
    ]


def test_rows_that_trickle_in_are_not_waited_for() -> None:
    """Between two batches the join is mostly idle, and its sources count as stalled."""
    recording = recorded(outcome=RUNNING)
    last = recording.latest
    sources = tuple(type(s)(s.name, s.rows + 1, "stalled") for s in last.sources)
    recording.tell(Moment("waiting", last.found, {**last.seconds, "waiting": 99.0}, sources=sources))
    assert figures.state(recording.snapshot()) == "arriving"
    assert {source.state for source in figures.sources(recording.snapshot())} == {"arriving"}
    recording.note()
    assert figures.state(recording.snapshot()) == "arriving"
    recording.tell(Moment("waiting", last.found, {**last.seconds, "waiting": 100.0}, sources=sources))
    assert figures.state(recording.snapshot()) == "waiting"
    assert {source.state for source in figures.sources(recording.snapshot())} == {"stalled"}


def test_figures() -> None:
    done, running = recorded(), recorded(outcome=RUNNING)
    assert figures.first_result_s(done.moments) == 0.1
    assert figures.rate(done.snapshot()) == 360
    assert figures.rate(running.snapshot()) == pytest.approx(400)
    assert figures.peak(done.moments, "resident_rows") == 5000
    assert figures.expectation(done.snapshot()) == "3,600, all of them"
    assert figures.expectation(running.snapshot()) == "3,600"
    assert figures.expectation(recorded(outcome=RUNNING, estimates=False).snapshot()) == "not known yet"
    assert [(row.phase, row.results) for row in figures.by_phase(done.snapshot())] == [
        *(("arriving", 2400), ("reactive", 800), ("waiting", 0), ("cleanup", 400))
    ]
    assert [formatting.format_bytes(n) for n in (999, 65_536, 2_000_000, 2_050_000, 600_000, 10**9)] == [
        *("999 B", "65.5 kB", "2 MB", "2.05 MB", "600 kB", "1 GB")
    ]


def test_round_numbers_at_the_axes() -> None:
    assert plot.nice_values(733_000) == [0, 200_000, 400_000, 600_000]
    assert plot.nice_values(3) == [0, 1, 2, 3]
    assert plot.nice_values(1.1) == [0, 1]
    assert [formatting.short(v, trim=True) for v in (0, 5, 1000, 2.5e6, 1e9, 2e12)] == [
        "0",
        "5",
        "1k",
        "2.5M",
        "1G",
        "2T",
    ]
    assert plot.nice_seconds(14.2) == [0, 2, 4, 6, 8, 10, 12, 14] or plot.nice_seconds(14.2) == [0, 5, 10]
    assert [formatting.format_seconds(s) for s in (0, 0.25, 15, 150, 3723)] == [
        "0 s",
        "0.25 s",
        "15 s",
        "2:30",
        "1:02:03",
    ]
    for end in (0.001, 0.3, 7, 100, 5000, 10**6, 10**9):
        assert 1 <= len(plot.nice_seconds(end)) <= 9


def test_long_lines_are_thinned() -> None:
    points = [(float(n), float(n)) for n in range(100_000)]
    thin = plot.thin(points)
    assert len(thin) <= plot.MOST_POINTS + 1
    assert (thin[0], thin[-1]) == (points[0], points[-1])


def test_many_moments_are_enough_if_they_are_some(tmp_path: Path) -> None:
    """Moments of a whole day: the picture is still drawn immediately, and keeps the time of the first result."""
    recording = recorded(outcome=RUNNING)
    first, second = recording.moments[0].moment, recording.moments[50].moment
    recording.moments = [Noted(2.0 * n, first if n < 1234 else second) for n in range(43_200)]
    recording.tell(second)
    snapshot = recording.snapshot()
    assert len(snapshot.moments) < 2 * MOST_MOMENTS
    assert figures.first_result_s(snapshot.moments) == 2 * 1234
    assert snapshot.moments[-1].second == snapshot.seconds == 86_398
    assert report(recording, tmp_path / "run.html").stat().st_size < 150_000


def test_a_report_is_written_through_no_link_of_somebody_else(tmp_path: Path) -> None:
    recording = recorded()
    mine, target = tmp_path / "mine.html", tmp_path / "target.html"
    mine.symlink_to(target)
    report(recording, mine)
    assert mine.is_symlink()
    assert target.stat().st_size
    report(recording, os.devnull)
    assert not Path(os.devnull).is_file()
    if os.geteuid() == 0:
        os.chown(mine, 54321, 54321, follow_symlinks=False)
        target.write_text("as it was")
        with pytest.raises(InputError, match="is a link that belongs to user 54321"):
            report(recording, mine)
        assert target.read_text() == "as it was"
