"""A block that is read repeatedly, but not held in memory in between.

The file is mapped once. After each use its pages are returned to the system, so that only pages in use count as memory
of the process. The next use finds them in the page cache, or on disk.
"""

from __future__ import annotations

import pyarrow as pa

from dovetail.storage.allocator import return_pages


class MappedBlock:
    def __init__(self, data: pa.Buffer) -> None:
        self._data = data
        self._reader = pa.ipc.open_file(pa.BufferReader(data))

    def read(self, page: int = 0) -> pa.RecordBatch:
        """The rows of a page, without a copy. They stay readable after `release`."""
        return self._reader.get_batch(page)

    @property
    def pages(self) -> int:
        return int(self._reader.num_record_batches)

    def release(self) -> None:
        """Return the pages to the system."""
        return_pages(self._data.address, self._data.size)
