"""The page of licences lists every package that is installed with Dovetail and its extras, in its locked version."""

from __future__ import annotations

import re
import tomllib

from tests.docs.pages import ROOT

LOCKED = re.compile(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", re.MULTILINE)
ROW = re.compile(r"^\| ([A-Za-z0-9_.-]+) \| ([^ ]+) \| .+ \|$", re.MULTILINE)
NAME = re.compile(r"[A-Za-z0-9_.-]+")


def test_every_locked_package_has_a_licence() -> None:
    page = (ROOT / "locks" / "licences.md").read_text()
    run, dev = (LOCKED.findall((ROOT / "locks" / f"{name}.txt").read_text()) for name in ("run", "dev"))
    rows = [row for row in ROW.findall(page) if row[0] != "package"]
    assert run
    assert rows[: len(run)] == run, "run `make licences`"
    assert set(rows[len(run) :]) <= set(dev), "run `make licences`"


def test_every_extra_is_there() -> None:
    page = (ROOT / "locks" / "licences.md").read_text()
    names = {name for name, _ in ROW.findall(page)}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {found[0] for texts in extras.values() for text in texts if (found := NAME.match(text))}
    assert wanted <= names
    assert "psycopg-binary" in names  # installed by `psycopg[binary]`
