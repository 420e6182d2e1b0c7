"""Making repeated tasks in one Python worker cheap, and the worker no larger than what it holds."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress

import pyarrow as pa

FEW_MODULES = 20
M_MMAP_THRESHOLD = -3  # as malloc.h has it
LARGE = 1 << 17  # bytes

_modules = 0
_small = False


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


def stay_small() -> None:
    """From now on, large pieces of memory go back to the system when they are freed; call this before they are made.

    Allocators keep them for the next time, and pieces of other sizes beside them: a join that keeps to a budget of
    64 MB grew by 170 MB. Asking the system each time costs a fifth of its time.
    """
    global _small
    if _small:
        return
    _small = True
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)
    pa.set_memory_pool(pa.system_memory_pool())


def give_back() -> None:
    """Return small pieces that nobody uses to the system, as far as they are next to each other."""
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
