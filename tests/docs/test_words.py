"""Documentation and docstrings are in plain English: some phrases that confused readers must not come back."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

PEOPLE = r"so many|whoever|nobody|everybody|somebody|anybody"
PHRASES = rf"{PEOPLE}|whatever|as of"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(ROOT.glob("docs/**/*.md"))]


SOURCES = sorted((ROOT / "src").rglob("*.py"))
OPENING = r"(?:^|[.!?] )Of [a-z`].*"  # a sentence without a subject


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_plain_words(page: Path) -> None:
    text = page.read_text()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(rf"\b(?:{PHRASES})\b", prose, re.IGNORECASE) == []
    assert re.findall(OPENING, prose, re.MULTILINE) == []


def test_plain_docstrings() -> None:
    found = []
    for source in SOURCES:
        code = source.read_text()
        if not re.search(rf"\b(?:{PEOPLE})\b|Of [a-z`]", code):
            continue  # parsing takes most of the time
        for node in ast.walk(ast.parse(code)):
            text = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
            if isinstance(text, str) and (re.search(rf"\b(?:{PEOPLE})\b", text) or re.match("Of [a-z`]", text)):
                found.append(f"{source.relative_to(ROOT)}:{node.lineno}")
    assert found == []
