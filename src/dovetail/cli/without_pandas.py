"""Keeps pyarrow from importing pandas, which takes a third of a second and is not needed for files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType


class _NoPandas:
    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out", name=name)


_finder = _NoPandas()


def leave_out_pandas() -> None:
    """Only for a process that belongs to this program: pyarrow looks for pandas once."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _finder)


def allow_pandas() -> None:
    """For PySpark, which needs pandas."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
