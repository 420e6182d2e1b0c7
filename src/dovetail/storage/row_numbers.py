"""Row numbers on disk: lists are appended by any number of threads, and any part can be read."""

from __future__ import annotations

import os
import tempfile
import threading

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import StateError

Numbers = NDArray[np.int32]


class RowNumbers:
    """A temporary file that is deleted when it is closed."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="dovetail-", buffering=0)  # noqa: SIM115
        self._length = 0
        self._lock = threading.Lock()

    def append(self, numbers: Numbers) -> int:
        """Append a list. Returns its start."""
        view = memoryview(numbers.tobytes())
        with self._lock:
            start = self._length
            self._length += len(numbers)
        offset = start * numbers.itemsize
        try:
            while view:  # the system may write fewer bytes than requested
                written = os.pwrite(self._file.fileno(), view, offset)
                view, offset = view[written:], offset + written
        except OSError as error:
            raise StateError(f"cannot write row numbers to {tempfile.gettempdir()}: {error.strerror}.") from error
        return start

    def read(self, start: int, stop: int) -> Numbers:
        size = np.dtype(np.int32).itemsize
        return np.frombuffer(os.pread(self._file.fileno(), size * (stop - start), size * start), np.int32)

    def close(self) -> None:
        self._file.close()
