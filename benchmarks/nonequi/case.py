"""A case: its tables, and the question about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nonequi.question import AsOf, Nearest, Question, Streams, WindowSums

OUTPUTS = ("rows", "count", "first")
FIRST_ROWS = 1_000
WARM_ROWS = 2_000
Tables = tuple[pa.Table, pa.Table]
Generate = Callable[[int, np.random.Generator], Tables]


class Files(NamedTuple):
    left: Path
    right: Path


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    generate: Generate
    """Generates the tables. The size is the number of left rows; the number of results grows with it."""
    question: Question
    source: str = ""
    """The origin of the case, if it is not ours."""
    rows: int | None = None
    """The size, if there is only one."""
    bin_width: int = 0
    """The approximate distance between partners, for hand-written queries with bins."""
    only_counted: bool = False
    """Whether there are too many results to produce them all."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Counting is only useful if the result does not have a fixed number of rows per left row."""
        if self.only_counted:
            return ("count",)
        counted = not isinstance(self.question, AsOf | Nearest | WindowSums | Streams)
        return OUTPUTS if counted else ("rows", "first")


def write_tables(case: Case, rows: int, directory: Path) -> Files:
    """Write the tables to Parquet files, which are kept for later runs."""
    place = directory / f"{case.name}-{rows}"
    files = Files(place / "left.parquet", place / "right.parquet")
    if not files.right.exists():
        place.mkdir(parents=True, exist_ok=True)
        for file, table in zip(files, case.generate(rows, np.random.default_rng(1)), strict=True):
            unfinished = file.with_suffix(".unfinished")
            pq.write_table(table, unfinished, row_group_size=250_000)
            unfinished.rename(file)
    return files
