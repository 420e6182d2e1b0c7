"""Attributes of a package that are imported at first use, and old names of modules that have moved."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_attributes(
    package: str,
    modules: tuple[str, ...] = (),
    names: Mapping[str, str] | None = None,
    moved: Mapping[str, str] | None = None,
) -> Callable[[str], Any]:
    """The `__getattr__` of a package: some of its modules, names defined in modules below it, and names that moved.

    After `import dovetail` there are `dovetail.testing` and `dovetail.join`; dependencies are imported at first use.
    """
    homes, moves = names or {}, moved or {}

    def attribute(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name in moves:
            return _find_moved(f"{package}.{name}", f"{package}.{moves[name]}", name)
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # later lookups do not call this function
        return value

    return attribute


class MovedModule(ModuleType):
    """A module under its old name. Names are looked up in the new module, with a warning."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(old, f"The old name of {new}.")
        self._new = new

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # tools ask every module for __file__ and __path__
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return _find_moved(f"{self.__name__}.{name}", self._new, name)


def accept_old_modules(package: str, moved: Mapping[str, str]) -> None:
    """Let `import` find the modules of a package under their old names."""
    for old, new in moved.items():
        sys.modules[f"{package}.{old}"] = MovedModule(f"{package}.{old}", f"{package}.{new}")


def _find_moved(old: str, module: str, name: str) -> Any:
    value = getattr(import_module(module), name)
    warnings.warn(f"{old} has moved: use {module}.{name}.", DeprecationWarning, stacklevel=3)
    return value
