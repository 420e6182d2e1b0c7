"""Returns freed memory to the system.

Allocators retain freed memory for reuse. If a budget limits the size of a process, they are configured to return it.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any

import pyarrow as pa

M_MMAP_THRESHOLD = -3  # from glibc's malloc.h
LARGE = 1 << 17  # bytes
PARTS = 8  # freed memory is returned again after growth by this part of a limit
LEAST_GROWTH = 1 << 22  # bytes
MADV_DONTNEED = 4  # from sys/mman.h


def trim_heap() -> None:
    """Return unused memory to the system, as far as it is contiguous."""
    pa.default_memory_pool().release_unused()
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


class GrowthWatch:
    """Returns freed memory when the process has grown by what a join may take. Call `look` periodically.

    Allocators keep freed memory for pieces of the same size and thread: a join that holds 100 MB at a time may make the
    process grow by 200 MB. If the process grows for other reasons, the cost is small: after each return it may grow by
    a part of the limit before the next.
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
    """Memory of this process that is not backed by a file, as Linux counts it. 0 on other systems."""
    try:
        with open("/proc/self/status", "rb", buffering=0) as file:
            _, _, after = file.read(4096).partition(b"RssAnon:")
    except OSError:
        return 0
    return 1024 * int(after.split(None, 1)[0]) if after else 0


@cache
def stay_small() -> None:
    """From now on, return large pieces to the system when they are freed. Call it before they are allocated.

    With pieces of many sizes an allocator keeps more and more: a join with a budget of 64 MB grew by 170 MB. The system
    calls cost such a join a fifth of its time.
    """
    option = _function("mallopt")
    if option is not None:
        option(M_MMAP_THRESHOLD, LARGE)
        pa.set_memory_pool(pa.system_memory_pool())


def return_pages(address: int, nbytes: int) -> None:
    """Return the pages of a mapped file. They are read from the file again when they are used next."""
    advise = _function("madvise")
    if advise is not None:
        first = address - address % mmap.PAGESIZE
        advise(ctypes.c_void_p(first), ctypes.c_size_t(address + nbytes - first), MADV_DONTNEED)


@cache
def _function(name: str) -> Any:
    """A function of glibc. None with another C library."""
    return getattr(ctypes.CDLL(None), name, None)
