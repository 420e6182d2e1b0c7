"""Dovetail on Spark: DataFrames at rest, and streams."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contenders.dovetail import on
from benchmarks.nonequi.contenders.on_spark import OnSpark
from benchmarks.nonequi.question import AsOf, Nearest, Pairs, Streams, WindowSums


class DovetailOnSpark(OnSpark):
    title = "Dovetail on Spark"
    packages = ("dovetail-joins", "pyspark")
    first_by = "`take` of a join with `limit=`"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        if isinstance(case.question, WindowSums):
            return '`aggregate` with `how="left"` is for tables in process'
        return None

    def load(self, files: Files) -> None:
        super().load(files)
        if isinstance(self.case.question, Streams):
            self.directory = tempfile.TemporaryDirectory(prefix="nonequi-streams-")
            self.place = Path(self.directory.name)
            self.left, self.right = (self._stream(file, self.case.question.files) for file in files)

    def query(self, **options: Any) -> Any:
        import dovetail

        match self.case.question:
            case AsOf(left_time, right_time, keys):
                return dovetail.asof(
                    self.left, self.right, (left_time, right_time), by=[keys] if keys else None, **options
                )
            case Nearest(left, right, k):
                return dovetail.nearest(self.left, self.right, list(zip(left, right, strict=True)), k=k, **options)
            case Pairs(terms, how):
                return dovetail.join(self.left, self.right, on(terms), how, **options)
            case Streams(terms):
                window = dovetail.window(rows=self.rows_of_both)
                return dovetail.join(self.left, self.right, on(terms), window=window, **options)
        raise NotImplementedError(self.case.question)

    def rows(self) -> Any:
        if not isinstance(self.case.question, Streams):
            return super().rows()
        return self._written(self.query())

    def count(self) -> int:
        import dovetail

        match self.case.question:
            case Pairs(terms, "inner"):
                return int(dovetail.count(self.left, self.right, on(terms)))
        return super().count()

    def first(self, rows: int) -> int:
        found = self.query(limit=rows)
        if isinstance(self.case.question, Streams):
            return int(self._written(found).count())
        return len(found.take(rows))

    def _stream(self, file: Path, files: int) -> Any:
        """The stream of a table that is split into this many files, one per micro-batch."""
        table = pq.read_table(file)
        self.rows_of_both = 2 * table.num_rows
        place = self.place / file.stem
        place.mkdir(exist_ok=True)
        each = -(-table.num_rows // files)
        for number in range(files):
            pq.write_table(table.slice(number * each, each), place / f"{number}.parquet")
        reader = self.spark.readStream.schema(self.spark.read.parquet(str(file)).schema)
        return reader.option("maxFilesPerTrigger", 1).parquet(str(place))

    def _written(self, stream: Any) -> Any:
        """The number of rows that the query has written when its streams have ended."""
        place = tempfile.mkdtemp(dir=self.place)
        writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{place}/checkpoint")
        query = writer.trigger(availableNow=True).start(f"{place}/rows")
        query.awaitTermination()
        return self.spark.read.parquet(f"{place}/rows")
