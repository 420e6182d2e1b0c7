"""The report and the page in a real browser, if installed: what a person would see, and no external requests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.monitoring.browser import Browser, BrowserError, find_browser
from tests.monitoring.runs import HOSTILE, recorded
from tests.patience import PATIENCE_S

from dovetail.monitoring.report import report
from dovetail.monitoring.server import watch
from dovetail.monitoring.snapshot import RUNNING


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium or Chrome is installed; DOVETAIL_BROWSER can name one")
    try:
        browser = Browser(program)
    except (BrowserError, OSError) as error:
        pytest.skip(f"{program} does not start here: {error}")
    with browser:
        probe = tmp_path / "probe.html"
        probe.write_text("<title>probe</title>")
        try:
            browser.go(probe.as_uri())
        except BrowserError as error:
            pytest.skip(f"{program} may not open files in {tmp_path}: {error}")
        assert browser.evaluate("document.title") == "probe"
        browser.forget()
        yield browser


WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
LINE = "document.querySelector('path.line.results').getBoundingClientRect()"


def test_a_report(browser: Browser, tmp_path: Path) -> None:
    page = report(recorded(names=(HOSTILE, "payments"), on=HOSTILE), tmp_path / "run.html").as_uri()
    colours = []
    for width, dark in ((1100, False), (1100, True), (360, False)):
        browser.look(width=width, dark=dark)
        browser.go(page)
        assert HOSTILE in browser.evaluate("document.querySelector('h1').innerText")
        assert not browser.evaluate(WIDE)  # no horizontal scrolling
        box = browser.evaluate(f"[{LINE}.width, {LINE}.height]")
        assert box[0] > 0.8 * min(width, 1040) - 60
        assert box[1] > 100
        colours.append(browser.evaluate(BACKGROUND))
    assert colours[0] == colours[2] != colours[1]
    assert browser.complaints == []
    assert set(browser.requests) <= {page, "data:,"}


def test_figures_of_the_moment_one_points_at(browser: Browser, tmp_path: Path) -> None:
    browser.look()
    browser.go(report(recorded(), tmp_path / "run.html").as_uri())
    middle = browser.evaluate(
        "(() => { const box = document.querySelector('.plot').getBoundingClientRect();"
        " return [box.x + box.width * 0.455, box.y + 60]; })()"
    )
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=middle[0], y=middle[1])
    told = browser.wait_for("document.querySelector('.slices > span:hover b')?.innerText")
    assert "results" in told
    assert told.startswith("4.")


def test_a_page_that_follows_a_run(browser: Browser) -> None:
    recording = recorded(outcome=RUNNING, names=("orders", HOSTILE))
    with watch(recording) as server:
        browser.go(server.url)
        browser.wait_for("document.querySelector('.now .state').innerText === 'cleanup'")
        browser.evaluate("document.querySelector('details').open = true")
        recording.finish()
        browser.wait_for("document.querySelector('.now .state').innerText === 'done'")
        assert browser.evaluate("document.querySelector('details').open")  # a section opened by the reader stays open
        assert "the truth: 3,600" in browser.evaluate("document.body.innerText")
        server.wait_for_readers(PATIENCE_S)
        assert browser.complaints == []
        assert {url.split("?")[0] for url in browser.requests} <= {
            *(server.url, f"{server.url}page.js", f"{server.url}events/run", "data:,")
        }


def test_a_connection_that_is_lost(browser: Browser) -> None:
    with watch(recorded(outcome=RUNNING)) as server:
        browser.go(server.url)
        browser.wait_for("document.querySelector('.now .state').innerText === 'cleanup'")
    browser.wait_for("document.body.classList.contains('lost')")
    assert "3,600" in browser.evaluate("document.body.innerText")  # the last state
