"""polars-bio: intervals as Polars frames, zero-based."""

from __future__ import annotations

from typing import Any

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.intervals import CHROMOSOME, ONLY, how_of, interval_columns


class PolarsBio(Contender):
    title = "polars-bio"
    environment = "polars_bio"
    packages = ("polars-bio", "polars", "datafusion")
    first_by = "`head` of the lazy result"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        if interval_columns(case) is None:
            return ONLY
        return "`overlap` is an inner join" if how_of(case) == "left" else None

    def load(self, files: Files) -> None:
        import polars as pl
        import polars_bio

        columns = interval_columns(self.case)
        assert columns is not None
        frames = []
        for side, file, (start, end) in zip("lr", files, columns, strict=True):
            frame = pl.read_parquet(file).with_columns(pl.lit(CHROMOSOME).alias(f"{side}_chrom"))
            if end not in frame.columns:
                frame = frame.with_columns((pl.col(start) + 1).alias(end))
            frame.config_meta.set(  # type: ignore[attr-defined]  # of polars-config-meta
                coordinate_system_zero_based=True
            )
            frames.append(frame)
        self.left, self.right = frames
        names = [[f"{side}_chrom", *pair] for side, pair in zip("lr", columns, strict=True)]
        self.columns = {"cols1": names[0], "cols2": names[1]}
        self.library = polars_bio
        self.library.set_option("datafusion.execution.target_partitions", str(pl.thread_pool_size()))

    def rows(self) -> Any:
        return self._query().collect()

    def count(self) -> int:
        import polars as pl

        if how_of(self.case) == "left_anti":
            return int(self._query().collect().height)
        counts = self.library.count_overlaps(self.left, self.right, **self.columns)
        return int(counts.select(pl.col("count").sum()).collect().item())

    def first(self, rows: int) -> int:
        return int(self._query().head(rows).collect().height)

    def arrow(self, result: Any) -> Any:
        return result.rename({name: name.removesuffix("_1").removesuffix("_2") for name in result.columns}).to_arrow()

    def _query(self) -> Any:
        import polars as pl

        if how_of(self.case) == "left_anti":
            counts = self.library.count_overlaps(self.left, self.right, **self.columns)
            return counts.filter(pl.col("count") == 0)
        return self.library.overlap(self.left, self.right, **self.columns)
