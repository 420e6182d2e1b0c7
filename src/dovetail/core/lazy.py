"""Modules that are imported when they are first asked for, as attributes of their package."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def lazy_modules(package: str, *names: str) -> Callable[[str], ModuleType]:
    """The `__getattr__` of a package: after `import dovetail` there is `dovetail.testing`, imported at first use."""

    def attribute(name: str) -> ModuleType:
        if name in names:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return attribute
