"""The documentation is written in plain English: some phrases that readers stumble over do not come back."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT

PHRASES = r"so many|whatever|whoever|nobody|everybody|somebody|anybody|as of"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(ROOT.glob("docs/**/*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_plain_words(page: object) -> None:
    text = page.read_text()  # type: ignore[attr-defined]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(rf"\b(?:{PHRASES})\b", prose, re.IGNORECASE) == []
    assert re.findall(r"(?:^|[.!?] )Of [a-z`].*", prose, re.MULTILINE) == []
