"""SciPy's k-d tree for nearest neighbours; pyarrow gathers whole rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nonequi.case import Case, Files
from benchmarks.nonequi.contender import Contender
from benchmarks.nonequi.question import Nearest


class SciPy(Contender):
    title = "SciPy"
    packages = ("scipy",)
    first_by = "a query for as many points"

    @classmethod
    def cannot(cls, case: Case) -> str | None:
        return None if isinstance(case.question, Nearest) else "joins nothing but points by distance"

    def load(self, files: Files) -> None:
        self.left, self.right = (pq.read_table(file).combine_chunks() for file in files)

    def rows(self) -> Any:
        return self._neighbours(self.left.num_rows)

    def first(self, rows: int) -> int:
        return int(self._neighbours(rows).num_rows)

    def _neighbours(self, points: int) -> pa.Table:
        from scipy.spatial import KDTree  # type: ignore[import-untyped]

        question = self.case.question
        assert isinstance(question, Nearest)
        queries, others = (
            np.column_stack([table[name].to_numpy() for name in names])
            for table, names in ((self.left.slice(0, points), question.left), (self.right, question.right))
        )
        near = KDTree(others).query(queries, question.k, workers=-1)[1].ravel()
        found = self.left.take(np.repeat(np.arange(len(queries)), question.k))
        for name, column in zip(self.right.column_names, self.right.take(near).columns, strict=True):
            found = found.append_column(name, column)
        return found
