"""One decorator for all kernels, and where their machine code is cached.

Compiling takes seconds, loading from the cache a fraction of one. Numba raises when the cache cannot be written, so
the directory is probed first and caching is switched off where nothing is writable.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def _cache_directory() -> str | None:
    """A directory that Numba can write to, or None."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for candidate in [chosen] if chosen else [f"{home}/dovetail/numba", f"{tempfile.gettempdir()}/dovetail-numba"]:
        try:
            Path(candidate).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=candidate):
                return candidate
        except OSError:
            continue
    return None


_directory = _cache_directory()
if _directory is not None:
    setattr(numba.config, "CACHE_DIR", _directory)  # noqa: B010  numba makes its settings at run time


def kernel(function: F) -> F:
    """Compile on first call; release the GIL; cache the machine code between processes."""
    compiled = numba.njit(function, cache=_directory is not None, nogil=True, error_model="numpy")
    return cast(F, compiled)
