"""A workload: tables and the arrival time of each row, to play in real time or on a simulated clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail.sources.paced import Paced, Seconds


@dataclass(frozen=True, slots=True)
class Workload:
    """Rows are in the order of arrival; `seconds[i]` belongs to `tables[i]`."""

    tables: tuple[pa.Table, ...]
    seconds: tuple[Seconds, ...]

    def __post_init__(self) -> None:
        for table, seconds in zip(self.tables, self.seconds, strict=True):
            if table.num_rows != len(seconds) or np.any(np.diff(seconds) < 0):
                raise InputError(
                    f"a table of {table.num_rows:,} rows needs as many arrival times, in ascending order; "
                    f"got {len(seconds):,}."
                )

    @property
    def end_s(self) -> float:
        """The time at which the last row arrives."""
        return max((float(seconds[-1]) for seconds in self.seconds if len(seconds)), default=0.0)

    def merged(self) -> tuple[NDArray[np.int64], Seconds]:
        """The input and the time of each arrival, for all inputs in one sequence."""
        inputs = np.repeat(np.arange(len(self.seconds)), [len(seconds) for seconds in self.seconds])
        seconds = np.concatenate(self.seconds)
        order = np.argsort(seconds, kind="stable")
        return inputs[order], seconds[order]

    def sources(self, speed: float = 1.0) -> tuple[Paced, ...]:
        """The tables as sources that deliver each row when it is due, at `speed` times the original speed."""
        return tuple(Paced(table, seconds / speed) for table, seconds in zip(self.tables, self.seconds, strict=True))
