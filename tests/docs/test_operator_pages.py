"""Each operator has a page with its curve, which `python -m benchmarks.operator_curves` draws."""

from __future__ import annotations

import re

import pytest
from benchmarks.operator_curves import CURVES, PICTURES, stalling, stalls
from benchmarks.papers.plots import draw
from benchmarks.papers.verdicts import Plot
from tests.docs.pages import ROOT

from dovetail.operators.registry import REGISTRY

OPERATORS = sorted({*REGISTRY, "diag"})
LARGEST = 20_000  # bytes


def test_no_operator_is_left_out() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "operators").glob("*.md")} - {"index"}
    assert pages == set(OPERATORS) == CURVES.keys()


@pytest.mark.parametrize("operator", OPERATORS)
def test_pages_have_a_curve(operator: str) -> None:
    page = (ROOT / "docs" / "operators" / f"{operator}.md").read_text()
    assert re.search(rf"^!\[[^\]]+\]\(\.\./images/operators/{operator}\.svg\)$", page, re.MULTILINE)
    picture = (PICTURES / f"{operator}.svg").read_text()
    assert f"<title>{operator}: " in picture
    assert len(picture.encode()) < LARGEST


def test_the_workload_stalls_three_times() -> None:
    spans = stalls(stalling(0.5))
    assert len(spans) == 3
    spread = draw(Plot("a", "seconds", "share", {"b": [(0.0, 0.0), (20.0, 1.0)]}, shaded=spans, shaded_as="stall"))
    assert spread.count("<rect") == 1 + len(spans) + 1  # background and legend
