"""Freed memory is returned to the system. Uses separate processes, because allocators have state."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dovetail.storage import allocator

GLIBC = hasattr(ctypes.CDLL(None), "mallopt")

PIECES = """\
import numpy as np, pyarrow as pa
from dovetail.storage import allocator

def size():
    with open("/proc/self/statm") as file:
        return 4096 * int(file.read().split()[1])

pa.array([1.0]).cast(pa.float32())  # imports what Arrow imports at first use
allocator.stay_small()
before = size()
kept = []
for round in range(8):  # of growing size, each time with something small that stays between them
    large = []
    for _ in range(30):
        large.append(np.ones(20_000 * (round + 8)))
        large.append(pa.array(large[-1]).cast(pa.float32()))
        kept.append(b"x" * 1000)
    del large
print(size() - before)
"""


@pytest.mark.skipif(not GLIBC, reason="only glibc's allocator can be asked")
def test_large_pieces_go_back_when_they_are_freed() -> None:
    run = subprocess.run([sys.executable, "-c", PIECES], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 20_000_000


def test_freed_memory_goes_back_when_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """At three quarters of the limit, then after each further eighth, in case the growth has another reason."""
    size, trimmed = [50 << 20], []
    monkeypatch.setattr(allocator, "anonymous_bytes", lambda: size[0])
    monkeypatch.setattr(allocator, "trim_heap", lambda: trimmed.append(size[0] >> 20))
    watch = allocator.GrowthWatch(80 << 20)
    for grown in (0, 50, 60, 61, 70, 71, 72, 81, 82, 83):
        size[0] = (50 + grown) << 20
        watch.look()
    assert trimmed == [111, 122, 133]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells")
def test_anonymous_memory_is_what_the_process_has_written_to() -> None:
    before = allocator.anonymous_bytes()
    written = np.ones(4 << 20)
    assert allocator.anonymous_bytes() - before > 0.9 * written.nbytes
