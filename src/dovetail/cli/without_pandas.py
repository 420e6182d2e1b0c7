"""pyarrow imports pandas wherever it is installed. That takes a third of a second, and is of no use for files."""

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
    """For a process that is this program's own: pyarrow looks for pandas once."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _finder)


def allow_pandas() -> None:
    """PySpark needs it."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
