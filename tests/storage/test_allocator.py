"""What is freed goes back to the system. In processes of their own: allocators remember."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

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
