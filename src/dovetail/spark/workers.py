"""Making repeated tasks in one Python worker cheap."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress

import pyarrow as pa

FEW_MODULES = 20

_modules = 0


def settle() -> None:
    """Call this at the end of a task.

    Spark collects garbage after every task, which goes through everything that was ever imported: with Numba loaded,
    about 70 ms each time. What is there by now is there to stay, so it is taken out of the collector's sight.
    """
    global _modules
    if len(sys.modules) > _modules + FEW_MODULES:
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()


def give_back() -> None:
    """Return memory that nobody uses to the system: else the worker's size is that of its largest moments together."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
