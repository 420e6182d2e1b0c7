"""Return freed memory to the system.

Allocators retain freed memory for reuse. Where a budget bounds the size of a process, they are configured to return it.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any

import pyarrow as pa

M_MMAP_THRESHOLD = -3  # as glibc's malloc.h has it
LARGE = 1 << 17  # bytes
PARTS = 8  # of a limit: after so much growth, freed memory is returned again
LEAST_GROWTH = 1 << 22  # bytes
MADV_DONTNEED = 4  # as sys/mman.h has it


def trim_heap() -> None:
    """Return unused memory to the system, as far as it is contiguous."""
    pa.default_memory_pool().release_unused()
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


class GrowthWatch:
    """Returns freed memory as soon as the process has grown by what a join may take; `look` is called now and then.

    Allocators keep what is freed, for pieces of the same size and thread: a join that holds 100 MB at a time may have
    made the process grow by 200. Where the process grows for another reason, little is lost: after each time it may
    grow by a part of the limit before the next.
    """

    def __init__(self, limit: int) -> None:
        self._part = max(LEAST_GROWTH, limit // PARTS)
        self._least = limit - limit // 4
        self._before = anonymous_bytes()
        self._next = self._least

    def look(self) -> None:
        if anonymous_bytes() - self._before > self._next:
            trim_heap()
            self._next = max(self._least, anonymous_bytes() - self._before + self._part)


def anonymous_bytes() -> int:
    """Memory of this process that is in no file, as Linux counts it; 0 on other systems."""
    try:
        with open("/proc/self/status", "rb", buffering=0) as file:
            _, _, after = file.read(4096).partition(b"RssAnon:")
    except OSError:
        return 0
    return 1024 * int(after.split(None, 1)[0]) if after else 0


@cache
def stay_small() -> None:
    """From now on, large pieces go back when they are freed; call this before they are made.

    With pieces of many sizes an allocator keeps more and more: a join that keeps to a budget of 64 MB grew by 170 MB.
    Asking the system each time costs such a join a fifth of its time.
    """
    option = _function("mallopt")
    if option is not None:
        option(M_MMAP_THRESHOLD, LARGE)
        pa.set_memory_pool(pa.system_memory_pool())


def return_pages(address: int, nbytes: int) -> None:
    """Return the pages of a mapped file. They are read again from it when they are next used."""
    advise = _function("madvise")
    if advise is not None:
        first = address - address % mmap.PAGESIZE
        advise(ctypes.c_void_p(first), ctypes.c_size_t(address + nbytes - first), MADV_DONTNEED)


@cache
def _function(name: str) -> Any:
    """A function of glibc; None where there is another C library."""
    return getattr(ctypes.CDLL(None), name, None)
