"""Simulates a full disk: the operating system refuses every write to a file."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

REASON = "File too large"


@contextmanager
def full_disk(nbytes: int = 0) -> Iterator[None]:
    """Limit the size of all files written by this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
