"""A case: its tables, and what is asked of them."""

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
    """Tables of a size, which is the number of rows of the left one, and which the number of results grows with."""
    question: Question
    source: str = ""
    """Where the case is from, if it is not ours."""
    rows: int | None = None
    """The size, if it has only one."""
    bin_width: int = 0
    """About how far apart partners are: for bins that are made by hand."""
    only_counted: bool = False
    """Whether there are too many results to put them together."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """To count the results makes sense only where they are not one or k for each left row."""
        if self.only_counted:
            return ("count",)
        counted = not isinstance(self.question, AsOf | Nearest | WindowSums | Streams)
        return OUTPUTS if counted else ("rows", "first")


def write_tables(case: Case, rows: int, directory: Path) -> Files:
    """Parquet files of the tables; they are kept from run to run."""
    place = directory / f"{case.name}-{rows}"
    files = Files(place / "left.parquet", place / "right.parquet")
    if not files.right.exists():
        place.mkdir(parents=True, exist_ok=True)
        for file, table in zip(files, case.generate(rows, np.random.default_rng(1)), strict=True):
            unfinished = file.with_suffix(".unfinished")
            pq.write_table(table, unfinished, row_group_size=250_000)
            unfinished.rename(file)
    return files
