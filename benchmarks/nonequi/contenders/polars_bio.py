"""polars-bio: intervals as Polars frames, zero-based."""

from __future__ import annotations

from typing import Any

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.intervals import CHROMOSOME, ONLY, chromosome_columns, how_of, interval_columns


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
        for file, (start, end), key in zip(files, columns, chromosome_columns(self.case), strict=True):
            frame = pl.read_parquet(file).rename({start: "start", end: "end"}, strict=False)
            chromosome = pl.col(key).cast(pl.String) if key else pl.lit(CHROMOSOME)
            frame = frame.with_columns(chromosome.alias("chrom"))
            if "end" not in frame.columns:
                frame = frame.with_columns((pl.col("start") + 1).alias("end"))
            frame.config_meta.set(  # type: ignore[attr-defined]  # of polars-config-meta
                coordinate_system_zero_based=True
            )
            frames.append(frame)
        self.left, self.right = frames
        self.library = polars_bio
        self.library.set_option("datafusion.execution.target_partitions", str(pl.thread_pool_size()))

    def rows(self) -> Any:
        return self._query().collect()

    def count(self) -> int:
        import polars as pl

        if how_of(self.case) == "left_anti":
            return int(self._query().collect().height)
        counts = self.library.count_overlaps(self.left, self.right)
        return int(counts.select(pl.col("count").sum()).collect().item())

    def first(self, rows: int) -> int:
        return int(self._query().head(rows).collect().height)

    def arrow(self, result: Any) -> Any:
        names = {name: name[:4] for name in result.columns if name.startswith(("l_id", "r_id"))}  # without suffixes
        return result.select(*names).rename(names).to_arrow()

    def _query(self) -> Any:
        import polars as pl

        if how_of(self.case) == "left_anti":
            counts = self.library.count_overlaps(self.left, self.right)
            return counts.filter(pl.col("count") == 0)
        return self.library.overlap(self.left, self.right)
