"""Charts in notebooks: one output that is updated in place, and well-formed for any names."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from tests.monitoring.runs import HOSTILE, recorded

import dovetail
from dovetail.monitoring.snapshot import DONE, FAILED, RUNNING, STOPPED
from dovetail.monitoring.terminal import draw_in_cell

TABLE = pa.table({"k": range(2000)})


class Outputs:
    """The outputs as IPython would show them: the latest content of each."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []
        self.updates = 0

    def display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        self.shown.append(bundle)
        number = len(self.shown) - 1

        def update(new: dict[str, str], *, raw: bool) -> None:
            self.updates += 1
            self.shown[number] = new

        return SimpleNamespace(update=update)


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> Outputs:
    """The outputs of a simulated notebook."""
    found = Outputs()
    kernel = SimpleNamespace(kernel=object())
    display = SimpleNamespace(display=found.display)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: kernel, display=display))
    return found


@pytest.mark.parametrize("outcome", [DONE, STOPPED, FAILED, RUNNING])
def test_a_chart_is_well_formed(outcome: str) -> None:
    recording = recorded(outcome=outcome, error="it broke", names=(HOSTILE, "b"), on=f"l.a = '{HOSTILE}'")
    html = recording._repr_html_()
    end = html.index("</svg>") + len("</svg>")
    svg = ElementTree.fromstring(html[:end])
    assert any("3,600" in (text.text or "") for text in svg.iter())
    assert HOSTILE not in html
    assert ("it broke" in html[end:]) == (outcome == FAILED)


def test_a_recording_is_told_in_a_line() -> None:
    assert repr(dovetail.Recording()) == "<Recording: not yet begun>"
    assert "not yet begun" in dovetail.Recording()._repr_html_()
    assert repr(recorded()).startswith("<Recording orders ⋈ payments: done, 3,600 results in ")


def test_one_output_is_replaced(outputs: Outputs) -> None:
    recording = recorded(outcome=RUNNING)
    drawing = draw_in_cell(recording, delay_s=0.0)
    next(drawing)
    next(drawing)
    drawing.close()
    assert len(outputs.shown) == 1
    assert outputs.updates == 2
    assert outputs.shown[0].keys() == {"text/html", "text/plain"}


def test_a_progressive_join_shows_itself_if_it_is_asked_to(outputs: Outputs) -> None:
    steps = dovetail.progressive(TABLE, TABLE, "l.k = r.k", progress=True)
    steps.memory  # noqa: B018  still a handle
    assert sum(step.batch.num_rows for step in steps) == 2000
    (shown,) = outputs.shown
    assert "done" in shown["text/html"]
    assert shown["text/plain"].startswith("<Recording left ⋈ right: done, 2,000 results")


@pytest.mark.parametrize("progress", [None, False])
def test_a_short_one_shows_nothing_by_itself(outputs: Outputs, progress: bool | None) -> None:
    list(dovetail.progressive(TABLE, TABLE, "l.k = r.k", progress=progress))
    assert outputs.shown == []


def test_elsewhere_it_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    list(dovetail.progressive(TABLE, TABLE, "l.k = r.k"))
    assert capsys.readouterr().err == ""
    list(dovetail.progressive(TABLE, TABLE, "l.k = r.k", progress=True))
    assert "2,000 results" in capsys.readouterr().err
