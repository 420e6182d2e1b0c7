"""pyranges1: intervals as its own kind of pandas frame."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.intervals import CHROMOSOME, ONLY, chromosome_columns, how_of, interval_columns


class PyRanges1(Contender):
    title = "pyranges1"
    packages = ("pyranges1", "pandas")
    needs = "Python 3.12 or later"
    first_by = "the whole result"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        return ONLY if interval_columns(case) is None else None

    def load(self, files: Files) -> None:
        import pandas as pd
        import pyranges1

        columns = interval_columns(self.case)
        assert columns is not None
        frames = []
        for file, (start, end), key in zip(files, columns, chromosome_columns(self.case), strict=True):
            frame = pd.read_parquet(file).rename(columns={start: "Start", end: "End"})
            frame["Chromosome"] = frame[key].astype(str) if key else CHROMOSOME
            frames.append(pyranges1.PyRanges(frame if "End" in frame else frame.assign(End=frame["Start"] + 1)))
        self.left, self.right = frames

    def rows(self) -> Any:
        match how_of(self.case):
            case "left_anti":
                return self.left.overlap(self.right, invert=True)
            case how:
                return self.left.join_overlaps(self.right, join_type=how, suffix="_right")

    def count(self) -> int:
        if how_of(self.case) == "inner":
            return int(self.left.count_overlaps(self.right)["Count"].sum())
        return len(self.rows())

    def first(self, rows: int) -> int:
        return len(self.rows().head(rows))

    def arrow(self, result: Any) -> pa.Table:
        kept = [name for name in ("l_id", "r_id") if name in result]
        return pa.table({name: pa.array(result[name], from_pandas=True) for name in kept})
