"""Give freed memory back to the system.

Allocators keep what was freed for later. Where a budget bounds what a process takes, they are asked not to.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import pyarrow as pa


def give_back() -> None:
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    """glibc's malloc_trim; None where there is another C library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
