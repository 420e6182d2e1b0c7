"""How memory is divided: half is for the window and the table that is being filled, a quarter for seeing that keys are
unique, the rest for batches at hand and mishits."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.diag.repeated_keys import Repeats
from dovetail.diag.ring import ROW_BYTES
from dovetail.errors import BudgetError
from dovetail.planning.plan import Diagonal
from dovetail.sources.scans import Scan

WINDOW, NOTES, BLOCK, CHUNK = 2, 4, 32, 8  # parts of the memory
LEAST_ROWS, MOST_ROWS = 1 << 10, 1 << 15  # read at once


@dataclass(frozen=True, slots=True)
class DiagMemory:
    """What may be held of each kind. Without a limit the window takes what it needs."""

    batch_rows: tuple[int, int]  # of R1 and RN
    table_bytes: int
    aside_bytes: int  # mishits that wait for being written
    chunk_bytes: int  # mishits that are joined at once
    partitions: int

    @classmethod
    def divide(cls, memory_bytes: int | None, window: Diagonal, one: Scan, many: Scan) -> DiagMemory:
        most_rows = (max(LEAST_ROWS, min(MOST_ROWS, window.table_rows)), MOST_ROWS)  # no more than a table at once
        if memory_bytes is None:
            return cls(most_rows, 1 << 30, 1 << 26, 1 << 28, 16)  # offsets of texts have 32 bits
        if memory_bytes < least_bytes(one.rows):
            raise BudgetError(
                f"diag keeps 6 bytes for each of the {one.rows:,} rows of the side with the key, in a quarter of its "
                f"memory: give it {least_bytes(one.rows):,} bytes or more, or choose another algorithm."
            )
        sizes = [scan.total_bytes() for scan in (one, many)]
        block, chunk = memory_bytes // BLOCK, memory_bytes // CHUNK
        rows = [
            max(1, min(most, block * scan.rows // max(1, size)))
            for scan, size, most in zip((one, many), sizes, most_rows, strict=True)
        ]
        partitions = min(64, max(4, -(-sizes[1] // chunk)))
        return cls((rows[0], rows[1]), memory_bytes // WINDOW // (window.tables + 1), block, chunk, partitions)


def least_bytes(rows: int) -> int:
    """The memory that a join needs for a number of rows of the side with the key."""
    return NOTES * Repeats.nbytes_for(rows)


def fitting_rows(scan: Scan, tables: int, memory_bytes: int | None) -> int:
    """Rows of a table, so that all of them fit in the memory that is for the window."""
    if memory_bytes is None:
        return scan.rows
    return memory_bytes // WINDOW // (tables + 1) // (scan.total_bytes() // max(1, scan.rows) + ROW_BYTES)
