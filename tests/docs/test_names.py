"""All names in the documentation and in error messages are available after `import dovetail` alone."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import dovetail

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
MODULES = sorted(ROOT.glob("src/dovetail/**/*.py"))
DOTTED = re.compile(r"(?<![\w./-])dovetail(?:\.[A-Za-z_]\w*)+")
KEYWORD = re.compile(r"\b([a-z_]+)=(?!=)")

# Forks for every module, so that Dovetail's imports for one name cannot help the next. Other imports are shared.
RESOLVE = """
import json, os, sys
from functools import reduce
import numba, pandas, pyarrow.flight, pyarrow.parquet, pyspark.sql, sqlglot
import dovetail

for names in json.load(sys.stdin):
    if child := os.fork():
        if os.waitpid(child, 0)[1]:
            print(*names, flush=True)
        continue
    sys.stderr.close()
    for name in names:
        reduce(getattr, name.split(".")[1:], dovetail)
    os._exit(0)
"""


def texts(module: Path) -> Iterator[str]:
    """The texts of a module: docstrings and messages."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def prose(page: Path) -> str:
    """The page without references to docstrings (`::: dovetail.api.join`), which MkDocs resolves without imports."""
    return "\n".join(line for line in page.read_text().splitlines() if not line.startswith(":::"))


def test_dotted_names() -> None:
    sources = [prose(page) for page in PAGES] + [text for module in MODULES for text in texts(module)]
    names = sorted({name for text in sources for name in DOTTED.findall(text)})
    assert "dovetail.testing.check_operator" in names
    together: dict[str, list[str]] = defaultdict(list)
    for name in names:
        module, _, attribute = name.rpartition(".")
        is_module = module == "dovetail" and attribute not in dovetail.__all__
        together[name if is_module else module].append(name)
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE],
        input=json.dumps(list(together.values())),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == []


def messages(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Raise):
            yield from (
                part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )


def test_arguments_that_errors_advise() -> None:
    functions = [
        getattr(place, name) for place in (dovetail, dovetail.sources) for name in place.__all__ if name != "Source"
    ]
    taken = {name for call in functions if inspect.isfunction(call) for name in inspect.signature(call).parameters}
    advised = {name for module in MODULES for text in messages(module) for name in KEYWORD.findall(text)}
    assert "end" in advised
    assert advised - taken == {"trips"}  # a table of a query, which can have any name
