"""bioframe: intervals as pandas frames."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.intervals import CHROMOSOME, ONLY, chromosome_columns, how_of, interval_columns


class Bioframe(Contender):
    title = "bioframe"
    packages = ("bioframe", "pandas")
    first_by = "the whole result"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        return ONLY if interval_columns(case) is None else None

    def load(self, files: Files) -> None:
        import pandas as pd

        columns = interval_columns(self.case)
        assert columns is not None
        frames = []
        for side, file, (start, end), key in zip("lr", files, columns, chromosome_columns(self.case), strict=True):
            frame = pd.read_parquet(file)
            frame[f"{side}_chrom"] = frame[key].astype(str) if key else CHROMOSOME
            frames.append(frame if end in frame else frame.assign(**{end: frame[start] + 1}))
        self.left, self.right = frames
        names = [(f"{side}_chrom", *pair) for side, pair in zip("lr", columns, strict=True)]
        self.columns = {"cols1": names[0], "cols2": names[1]}

    def rows(self) -> Any:
        import bioframe

        if how_of(self.case) == "left_anti":
            return bioframe.setdiff(self.left, self.right, **self.columns)
        return bioframe.overlap(self.left, self.right, how_of(self.case), **self.columns)

    def count(self) -> int:
        import bioframe

        if how_of(self.case) == "inner":
            return int(bioframe.count_overlaps(self.left, self.right, **self.columns)["count"].sum())
        return len(self.rows())

    def first(self, rows: int) -> int:
        return len(self.rows().head(rows))

    def arrow(self, result: Any) -> pa.Table:
        names = {"r_id_": "r_id"}  # it appends an underscore
        return pa.Table.from_pandas(result.rename(columns=names), preserve_index=False)
