"""The page of licences has every package that is installed with Dovetail, in its locked version."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

LOCKED = re.compile(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", re.MULTILINE)
ROW = re.compile(r"^\| ([A-Za-z0-9_.-]+) \| ([^ ]+) \| .+ \|$", re.MULTILINE)


def test_every_locked_package_has_a_licence() -> None:
    page = (ROOT / "locks" / "licences.md").read_text()
    locked = LOCKED.findall((ROOT / "locks" / "run.txt").read_text())
    assert locked
    assert [row for row in ROW.findall(page) if row[0] != "package"] == locked, "run `make licences`"
