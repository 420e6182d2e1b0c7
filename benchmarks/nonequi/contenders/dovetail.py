"""Dovetail in this process, on pyarrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.question import AsOf, Band, Nearest, Pairs, Streams, Term, WindowSums
from benchmarks.nonequi.sql import condition


def on(terms: Iterable[Term]) -> str:
    """The condition in the style of the documentation."""
    return " AND ".join(
        f"abs(l.{term.left} - r.{term.right}) <= {term.reach}" if isinstance(term, Band) else condition([term])
        for term in terms
    )


def sums(value: str) -> dict[str, str]:
    return {"n": "count(*)", "total": f"sum(r.{value})"}


class Dovetail(Contender):
    title = "Dovetail"
    environment = "spark"
    packages = ("dovetail-joins", "numba", "numpy", "pyarrow")
    first_by = "`limit=`, `progressive` for streams"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        return None

    def load(self, files: Files) -> None:
        self.left, self.right = (pq.read_table(file).combine_chunks() for file in files)

    def rows(self) -> Any:
        if isinstance(self.case.question, Streams):
            return pa.Table.from_batches(list(self._batches()))
        return self._join()

    def count(self) -> int:
        import dovetail

        match self.case.question:
            case Pairs(terms, "inner"):
                return int(dovetail.count(self.left, self.right, on(terms)))
            case Pairs(_, "right"):
                return int(self._join(columns=["r_id"]).num_rows)
        return int(self._join(columns=["l_id"]).num_rows)

    def first(self, rows: int) -> int:
        if isinstance(self.case.question, Pairs | AsOf | Nearest):
            return int(self._join(limit=rows).num_rows)
        found = 0
        for batch in self._batches():
            found += batch.num_rows
            if found >= rows:
                break
        return found

    def _join(self, **options: Any) -> Any:
        import dovetail

        match self.case.question:
            case AsOf(left_time, right_time, keys):
                return dovetail.asof(
                    self.left, self.right, (left_time, right_time), by=[keys] if keys else None, **options
                )
            case Nearest(left, right, k):
                points = list(zip(left, right, strict=True))
                return dovetail.nearest(self.left, self.right, points, k=k, **options)
            case WindowSums(terms, value):
                return dovetail.aggregate(self.left, self.right, on(terms), sums(value), "left")
            case Pairs(terms, how):
                return dovetail.join(self.left, self.right, on(terms), how, **options)
        raise NotImplementedError(self.case.question)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        import dovetail

        match self.case.question:
            case Streams(terms, files):
                left, right = (_reader(table, files) for table in (self.left, self.right))
                yield from (step.batch for step in dovetail.progressive(left, right, on(terms), memory=None))
            case WindowSums():
                yield from self._join().to_batches()
            case _:
                yield from self._join(to="reader")


def _reader(table: pa.Table, files: int) -> pa.RecordBatchReader:
    rows = -(-table.num_rows // files)
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=rows))
