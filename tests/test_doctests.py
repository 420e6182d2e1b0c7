"""The examples in docstrings run as written, and public calls have one."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from tests.test_public_surface import PUBLIC_MODULES, public_things

import dovetail

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.REPORT_NDIFF


def examples() -> Iterator[tuple[str, Any]]:
    """Public objects with an example, including those returned by public calls."""
    returned = [("dovetail.execution.steps.Step", importlib.import_module("dovetail.execution.steps").Step)]
    for name, thing in [*returned, *(pair for module in PUBLIC_MODULES for pair in public_things(module))]:
        if not inspect.ismodule(thing) and ">>>" in (thing.__doc__ or ""):
            yield name, thing


@pytest.mark.parametrize(("name", "thing"), list(examples()), ids=lambda value: value if isinstance(value, str) else "")
def test_an_example_runs(name: str, thing: Any) -> None:
    (test,) = doctest.DocTestFinder(recurse=False).find(thing, name, globs={})
    told: list[str] = []
    failed = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=told.append)
    assert failed.failed == 0, "".join(told)


ON_SPARK = ("finish", "follow", "listen", "write")
"""Their examples are code blocks; the docs have executable ones, with tests."""


def test_every_call_has_an_example() -> None:
    bare = [name for name in dovetail.__all__ if name not in (*ON_SPARK, "__version__") and ">>>" not in _doc(name)]
    assert bare == []
    assert all("\n        " in _doc(name) for name in ON_SPARK)


def _doc(name: str) -> str:
    return getattr(dovetail, name).__doc__ or ""


@pytest.mark.parametrize("name", [name for name in dovetail.__all__ if inspect.isfunction(getattr(dovetail, name))])
def test_every_argument_is_described(name: str) -> None:
    call = getattr(dovetail, name)
    given = inspect.signature(call).parameters
    prefix = {inspect.Parameter.VAR_KEYWORD: "**"}
    missing = [arg for arg, how in given.items() if f"\n        {prefix.get(how.kind, '')}{arg}: " not in call.__doc__]
    assert missing == []
