"""Names that are imported when they are first asked for, as attributes of their package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_attributes(
    package: str, modules: tuple[str, ...] = (), names: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """The `__getattr__` of a package: some of its modules, and names that are defined in modules below it.

    After `import dovetail` there are `dovetail.testing` and `dovetail.join`; what they need is imported at first use.
    """
    homes = names or {}

    def attribute(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # found at once the next time, whatever modules are called
        return value

    return attribute
