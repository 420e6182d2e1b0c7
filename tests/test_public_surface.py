"""The public surface is stable: names, signatures, fields of values, contents of manifests.

For an intended change, `python -m tests.test_public_surface` rewrites the golden file; review the diff.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import inspect
import json
import re
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.test_state_upgrade import write_state

import dovetail
from dovetail import testing
from dovetail.errors import DovetailError

GOLDEN = Path(__file__).parent / "golden" / "public_surface.json"


def described(value: Any) -> Any:
    """The description of a public object: its signature, and for classes the public members."""
    if inspect.isclass(value):
        members = {
            name: _signature(member) if callable(member) else "property"
            for name, member in inspect.getmembers(value)
            if not name.startswith("_") and not hasattr(BaseException, name) and not hasattr(tuple, name)
        }
        return {"signature": _signature(value), **({"members": members} if members else {})}
    return _signature(value) if callable(value) else str(value)


def _signature(value: Any) -> str:
    try:
        return str(inspect.signature(value))
    except ValueError:
        return "()"


def surface() -> dict[str, Any]:
    return {
        "names": {
            name: described(getattr(dovetail, name)) for name in sorted(dovetail.__all__) if name != "__version__"
        },
        "testing": {name: described(getattr(testing, name)) for name in testing.__all__ if not name.isupper()},
        "step": [field.name for field in dataclasses.fields(type(_first_step()))],
        "errors": sorted(kind.__name__ for kind in _all_subclasses(DovetailError)),
        "manifests": _manifest_keys(),
    }


def _first_step() -> Any:
    table = pa.table({"k": [1]})
    return next(iter(dovetail.progressive(table, table, "l.k = r.k")))


def _all_subclasses(kind: type) -> set[type]:
    return {kind}.union(*(_all_subclasses(sub) for sub in kind.__subclasses__()))


def _manifest_keys() -> dict[str, Any]:
    """The structure of the operators' manifests."""
    with tempfile.TemporaryDirectory() as directory:
        write_state(Path(directory))
        paths = sorted(Path(directory).glob("*/manifest.json"))
        return {path.parent.name: _shape(json.loads(path.read_text())["state"]) for path in paths}


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shape(field) for name, field in sorted(value.items())}
    return [_shape(value[0])] if isinstance(value, list) and value else type(value).__name__


def test_the_public_surface_is_as_it_was() -> None:
    now, before = surface(), json.loads(GOLDEN.read_text())
    # A new operator is not a breaking change; its manifest is added before the release.
    now["manifests"] = {name: now["manifests"].get(name) for name in before["manifests"]}
    assert now == before


def test_dir_shows_the_public_calls_and_nothing_else() -> None:
    assert dir(dovetail) == sorted(dovetail.__all__)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dovetail.simulate", "dovetail.testing.simulate"),
        ("dovetail.simulation.play", "dovetail.testing.play"),
        ("dovetail.simulation.laboratory.simulate", "dovetail.testing.simulation.simulate"),
        ("dovetail.sources.workload.Workload", "dovetail.testing.workload.Workload"),
        ("dovetail.sources.pace.steady", "dovetail.testing.arrival_times.steady"),
    ],
)
def test_old_names_are_accepted_with_a_warning(old: str, new: str) -> None:
    (old_module, _, name), (new_module, _, _) = old.rpartition("."), new.rpartition(".")
    with pytest.warns(DeprecationWarning, match=rf"^{re.escape(old)} has moved: use {re.escape(new)}\.$") as warned:
        found = getattr(importlib.import_module(old_module), name)
    assert found is getattr(importlib.import_module(new_module), name)
    assert warned[0].filename == __file__


PUBLIC_MODULES = (
    "dovetail",
    "dovetail.accessor",
    "dovetail.errors",
    "dovetail.operators.protocol",
    "dovetail.operators.registry",
    "dovetail.sources",
    "dovetail.testing",
)
"""Modules that users import, and modules for authors of operators and sources."""


def public_things(module: str) -> Iterator[tuple[str, Any]]:
    """A public module's functions, classes, and their methods and properties."""
    home = importlib.import_module(module)
    names = getattr(home, "__all__", None) or [
        name
        for name, value in vars(home).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module
    ]
    yield module, home
    for name in names:
        value = getattr(home, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            yield f"{module}.{name}", value
        if inspect.isclass(value):
            for member, given in vars(value).items():
                function = given.fget if isinstance(given, property) else getattr(given, "__func__", given)
                if not member.startswith("_") and inspect.isfunction(function):
                    yield f"{module}.{name}.{member}", function


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_everything_public_is_documented(module: str) -> None:
    things = list(public_things(module))
    assert len(things) > 1
    # A dataclass without a docstring gets its signature as its docstring.
    bare = [name for name, thing in things if not thing.__doc__ or thing.__doc__.startswith(f"{name.split('.')[-1]}(")]
    assert bare == []


def test_one_place_says_the_version() -> None:
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "dovetail.__version__"}
    assert importlib.metadata.version("dovetail-joins") == dovetail.__version__
    releases = re.findall(r"^## \[(\d[^\]]*)\]", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[:1] in ([], [dovetail.__version__])


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(surface(), indent=1, sort_keys=True) + "\n")
